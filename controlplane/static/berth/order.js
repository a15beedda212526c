// The order of Assignments: rows are dragged, and moved by their buttons, without loading the page. The form works without this, too.
(function () {
  "use strict";
  const form = document.getElementById("order_form");
  if (!form) return;
  const body = form.querySelector("#order tbody");
  const field = form.elements.names;
  const said = document.getElementById("order-moved");
  const all = field.value.split(" ");
  const first = all.indexOf((body.rows[0] || { dataset: {} }).dataset.name);
  const loaded = { order: field.value, says: said.textContent };
  let dragged = null;

  function note() {
    const shown = Array.from(body.rows, (row) => row.dataset.name);
    all.splice(first, shown.length, ...shown);
    field.value = all.join(" ");
    Array.from(body.rows).forEach((row, index) => {
      row.querySelector("[data-label=Place]").textContent = first + index + 1;
    });
    const isAsLoaded = field.value === loaded.order;
    said.textContent = isAsLoaded ? loaded.says : "This order differs from the live one. Save it with the button below.";
  }

  form.addEventListener("click", (event) => {
    const button = event.target.closest("button[name=move]");
    const row = button && button.closest("tr");
    if (!row) return; // to a typed place, perhaps of another page: the server moves it
    const isUp = button.value.startsWith("up ");
    const other = isUp ? row.previousElementSibling : row.nextElementSibling;
    if (!other) return; // beyond this page: the server moves it
    event.preventDefault();
    body.insertBefore(isUp ? row : other, isUp ? other : row);
    button.focus();
    note();
  });

  for (const row of body.rows) {
    row.draggable = true;
    row.addEventListener("dragstart", (event) => {
      dragged = row;
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", row.dataset.name);
    });
    row.addEventListener("dragover", (event) => {
      if (!dragged || dragged === row) return;
      event.preventDefault();
      const box = row.getBoundingClientRect();
      body.insertBefore(dragged, event.clientY < box.top + box.height / 2 ? row : row.nextElementSibling);
    });
    row.addEventListener("drop", (event) => event.preventDefault());
    row.addEventListener("dragend", () => {
      dragged = null;
      note();
    });
  }
})();
