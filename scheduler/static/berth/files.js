// Reads a chosen file into a text field: the server takes no files. Without this script its text is pasted.
(function () {
  "use strict";
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-berth-file]").forEach((box) => {
      const field = document.getElementById(box.dataset.berthFile);
      box.classList.remove("berth-hidden");
      box.querySelector("input").addEventListener("change", (event) => {
        const file = event.target.files[0];
        if (file) file.text().then((text) => { field.value = text; });
      });
    });
  });
})();
