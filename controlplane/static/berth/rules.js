// A rule is a built-in or an expression: show only the fields of the one that is chosen. Without this script all show.
(function () {
  "use strict";
  const ofExpression = ["expression", "reason", "on_error", "preemption_helps", "bounds_low", "bounds_high"];
  const ofBuiltin = ["arguments"];

  function wrapper(row, name) {
    const field = row.querySelector('[name$="-' + name + '"]');
    if (!field) return null;
    return field.closest(".field-line") || field.closest(".form-row-field") || field.parentElement.parentElement;
  }

  function update(row) {
    const builtin = row.querySelector('select[name$="-builtin"]');
    if (!builtin) return;
    const toggle = (names, shown) =>
      names.forEach((name) => {
        const box = wrapper(row, name);
        const faulty = box && box.querySelector(".errorlist");
        if (box) box.classList.toggle("berth-hidden", !shown && !faulty);
      });
    toggle(ofExpression, builtin.value === "");
    toggle(ofBuiltin, builtin.value !== "");
  }

  function updateAll() {
    document.querySelectorAll(".form-group").forEach(update);
  }

  // The button of each row that makes another row of it. What is copied is what is typed; a name is another one.
  function offerDuplicates() {
    document.querySelectorAll(".form-group > .form-row > h3").forEach((title) => {
      if (title.querySelector("[data-berth-duplicate]")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "berth-row-act";
      button.dataset.berthDuplicate = "";
      button.textContent = "Duplicate";
      button.title = "Add a rule with the same fields";
      title.insertBefore(button, title.lastElementChild);
    });
  }

  function fieldsOf(row) {
    const named = [...row.querySelectorAll("input[name], select[name], textarea[name]")];
    return new Map(named.map((field) => [field.name.replace(/^\w+-(\d+|__prefix__)-/, ""), field]));
  }

  function anotherName(name, group) {
    const taken = new Set([...group.querySelectorAll('[name$="-name"]')].map((field) => field.value));
    let found = name + "-copy";
    for (let number = 2; taken.has(found); number += 1) found = name + "-copy-" + number;
    return found;
  }

  function duplicate(row) {
    const group = row.closest("[data-inline-type]");
    const add = group.querySelector(".add-row");
    if (!add || add.classList.contains("hidden")) return;
    const before = new Set(group.querySelectorAll(".form-group"));
    add.click();
    const made = [...group.querySelectorAll(".form-group")].find((each) => !before.has(each));
    if (!made) return;
    const from = fieldsOf(row);
    fieldsOf(made).forEach((field, name) => {
      if (!from.has(name) || ["id", "version", "position", "DELETE"].includes(name)) return;
      const value = from.get(name).value;
      if (field.type === "checkbox") field.checked = from.get(name).checked;
      else field.value = name === "name" && value ? anotherName(value, group) : value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      field.dispatchEvent(new Event("change", { bubbles: true }));
    });
    const first = fieldsOf(made).get("name");
    first.scrollIntoView({ block: "center" });
    first.focus();
    first.select();
  }

  document.addEventListener("DOMContentLoaded", updateAll);
  document.addEventListener("DOMContentLoaded", offerDuplicates);
  document.addEventListener("formset:added", updateAll);
  document.addEventListener("formset:added", offerDuplicates);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-berth-duplicate]");
    if (button) duplicate(button.closest(".form-group"));
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches('select[name$="-builtin"]')) update(event.target.closest(".form-group"));
  });
})();
