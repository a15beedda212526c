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

  document.addEventListener("DOMContentLoaded", updateAll);
  document.addEventListener("formset:added", updateAll);
  document.addEventListener("change", (event) => {
    if (event.target.matches('select[name$="-builtin"]')) update(event.target.closest(".form-group"));
  });
})();
