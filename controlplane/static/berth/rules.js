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

  // The buttons of each row: it moves up and down, and another row is made of it. What is copied is what is typed; a name is another one.
  function offer(title, act, words, says) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "berth-row-act";
    button.dataset.berthRow = act;
    button.textContent = words;
    button.title = says;
    title.insertBefore(button, title.lastElementChild);
  }

  function offerActs() {
    document.querySelectorAll(".form-group > .form-row > h3").forEach((title) => {
      if (title.querySelector("[data-berth-row]")) return;
      offer(title, "up", "Up", "Move this rule above the previous one");
      offer(title, "down", "Down", "Move this rule below the next one");
      offer(title, "duplicate", "Duplicate", "Add a rule with the same fields");
    });
  }

  const rowsOf = (box) => [...box.querySelectorAll(":scope > .form-group:not(.empty-form)")];
  const placeOf = (row) => row.querySelector('input[name$="-position"]');

  // The server goes by the numbers of the rows. Unfold numbers those that it knew, and leaves out new ones.
  function number(box) {
    rowsOf(box).forEach((row, index) => {
      placeOf(row).value = index;
      placeOf(row).dispatchEvent(new Event("change", { bubbles: true }));
    });
  }

  function move(row, isUp) {
    const other = isUp ? row.previousElementSibling : row.nextElementSibling;
    if (!other || !rowsOf(row.parentElement).includes(other)) return;
    (isUp ? other.before(row) : other.after(row));
    number(row.parentElement);
  }

  // A refused form comes back with its rows as the server counts them, and with the numbers that they were given.
  function restoreOrder() {
    document.querySelectorAll(".formset").forEach((box) => {
      const rows = rowsOf(box);
      const place = (row) => (placeOf(row).value === "" ? Infinity : Number(placeOf(row).value));
      const sorted = [...rows].sort((one, other) => place(one) - place(other) || rows.indexOf(one) - rows.indexOf(other));
      if (sorted.some((row, index) => row !== rows[index])) sorted.forEach((row) => box.insertBefore(row, box.querySelector(":scope > .empty-form")));
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

  document.addEventListener("DOMContentLoaded", () => {
    restoreOrder();
    updateAll();
    offerActs();
  });
  // Going back, browsers choose what was chosen once the page is there.
  window.addEventListener("pageshow", updateAll);
  document.addEventListener("formset:added", () => {
    updateAll();
    offerActs();
  });
  // A new row went with the button that had the keyboard: the next place is the one that adds a row.
  document.addEventListener("formset:removed", (event) => {
    if (document.activeElement !== document.body) return;
    const add = document.querySelector("#" + event.detail.formsetName + "-group .add-row");
    if (add) add.focus({ preventScroll: true });
  });
  // A row was dragged: once Unfold has numbered those that it knows.
  document.addEventListener("end", (event) => {
    if (event.target.matches(".formset")) queueMicrotask(() => number(event.target));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-berth-row]");
    if (!button) return;
    const row = button.closest(".form-group");
    if (button.dataset.berthRow === "duplicate") duplicate(row);
    else {
      move(row, button.dataset.berthRow === "up");
      button.focus(); // it goes along, so that it can be pressed again
    }
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches('select[name$="-builtin"]')) update(event.target.closest(".form-group"));
  });
})();
