// Editors over the fields that hold expressions and documents; without this script they are plain textareas.
(function () {
  "use strict";
  const roots = { pod: "Pod", node: "Node", victim: "Pod" };
  const usage = { allocatable: "map:int", requested: "map:int", free: "map:int" };
  const members = ["apiVersion", "kind", "metadata", "spec", "filters", "scores", "victims", "params", "failures", "tests",
    "name", "description", "builtin", "expression", "arguments", "reason", "onError", "preemptionHelps", "mode", "weight", "bounds",
    "pod", "nodes", "pods", "namespaces", "now", "expect", "feasible", "best", "reasons", "protected"];
  const editors = new Map();
  let types = null;

  // Loaded when somebody first types in an editor: 100 kB that most pages don't need.
  function known() {
    types = types || fetch(document.getElementById("editor-top").dataset.berthFields).then((response) => response.json()).catch(() => ({}));
    return types;
  }

  function helped() {
    return [...document.querySelectorAll("[data-berth-help]")].map((code) => ({
      label: code.dataset.berthHelp,
      after: code.dataset.berthAfter,
      written: code.textContent,
      says: code.closest("tr").children[1].textContent,
      example: code.closest("tr").children[2].textContent,
    }));
  }

  function fieldsOf(found, path) {
    let type = roots[path[0]];
    if (path[0] === "namespaceObject") {
      const own = { namespaceObject: ["metadata"], "namespaceObject.metadata": ["name", "labels"] }[path.join(".")] || [];
      return own.map((label) => ({ label }));
    }
    if (path[0] === "usage" || path[0] === "requests") {
      if (path[0] === "usage" && path.length === 1) return Object.entries(usage).map(([label, kind]) => ({ label, detail: kind }));
      const ofNode = path[0] === "usage" ? ["pods"] : [];
      return ["cpu", "memory", ...ofNode, "ephemeral-storage"].map((label) => ({ label, detail: "int" }));
    }
    for (const step of path.slice(1)) {
      const field = type && found[type] && found[type][step];
      type = field ? field[0].replace(/^list:/, "") : undefined;
    }
    return Object.entries((type && found[type]) || {}).map(([label, [kind, info]]) => ({ label, detail: kind, info }));
  }

  async function complete(before, isAsked, isYAML) {
    const path = /([A-Za-z_]\w*(?:\[\?'[^']*'\])?(?:\??\.\??\w+)*)\.\??(\w*)$/.exec(before);
    if (path) {
      const steps = path[1].split(/\??\.\??/);
      const found = fieldsOf(await known(), steps);
      const own = helped().filter((each) => each.after && each.after === path[1])
        .map((each) => ({ label: each.label, detail: each.written, info: each.says + "\n" + each.example, apply: each.label + "(" }));
      const options = [...own, ...found];
      return options.length ? { from: before.length - path[2].length, options } : null;
    }
    const word = /\w*$/.exec(before)[0];
    if (!word && !isAsked) return null;
    const names = helped().filter((each) => !each.after && /^\w+$/.test(each.label))
      .map((each) => ({ label: each.label, detail: each.written === each.label ? "" : each.written, info: each.says + "\n" + each.example }));
    const variables = ["topology", "cluster", "victim"].map((label) => ({ label }));
    const isMember = isYAML && /(^|\n)[\s-]*\w*$/.test(before);
    const options = isMember ? members.map((label) => ({ label, apply: label + ": " })) : [...names, ...variables];
    return { from: before.length - word.length, options };
  }

  function mount(textarea) {
    if (editors.has(textarea) || textarea.name.includes("__prefix__") || !window.BerthEditor) return;
    const isYAML = textarea.id === "id_text" || textarea.id === "id_tests" || textarea.id === "id_test";
    const isCEL = /-expression$/.test(textarea.name);
    if (!isYAML && !isCEL) return;
    const label = document.querySelector('label[for="' + textarea.id + '"]');
    const made = window.BerthEditor.mount(textarea, {
      language: isYAML ? "yaml" : "cel",
      label: label ? label.textContent.trim() : textarea.name,
      complete: (before, isAsked) => complete(before, isAsked, isYAML),
    });
    if (isYAML) made.host.classList.add("berth-cm-document");
    if (label) label.addEventListener("click", () => made.view.focus());
    editors.set(textarea, made);
  }

  function mountAll() {
    document.querySelectorAll("textarea.berth-code").forEach(mount);
  }

  // Going back, and opening a closed tab anew, browsers put what was typed into the fields once the page is there: the editors show it, too.
  function showRestored() {
    editors.forEach((made, textarea) => {
      const shown = made.view.state.doc;
      if (shown.toString() === textarea.value) return;
      made.view.dispatch({ changes: { from: 0, to: shown.length, insert: textarea.value } });
    });
  }

  document.addEventListener("DOMContentLoaded", mountAll);
  window.addEventListener("pageshow", showRestored);
  document.addEventListener("formset:added", mountAll);
  document.addEventListener("berth:faults", (event) => {
    editors.forEach((made, textarea) => {
      const own = event.detail.filter((fault) => fault.field === textarea.id);
      made.show(own.map((fault) => ({ ...fault, message: fault.message.replace(/^line \d+, column \d+: /, "") })));
    });
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-berth-line]");
    const made = link && editors.get(document.getElementById(link.getAttribute("href").slice(1)));
    if (!made) return;
    event.preventDefault();
    made.goTo(Number(link.dataset.berthLine));
  });
})();
