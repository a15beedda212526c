// Reads a chosen file into a text field: the server takes no files. Without this script its text is pasted.
(function () {
  "use strict";
  const AT_MOST_BYTES = 4; // of a character in UTF-8

  // Returns why a file isn't loaded, or what is wrong with what was; else "".
  async function load(file, field) {
    const tooLong = `${file.name} wasn't loaded: it has more than ${field.maxLength.toLocaleString("en")} characters.`;
    if (file.size > AT_MOST_BYTES * field.maxLength) return tooLong;
    const text = await file.text();
    if (text.length > field.maxLength) return tooLong;
    field.value = text;
    return text.includes("\ufffd") ? `${file.name} isn't UTF-8: what couldn't be read is \ufffd in the field below.` : "";
  }

  document.querySelectorAll("[data-berth-file]").forEach((box) => {
    const input = box.querySelector("input");
    // Else app.js of Unfold (0.91) writes the file's name into the form's next text field, which is that of the rule set.
    input.hasChangeListener = true;
    box.classList.remove("berth-hidden");
    input.addEventListener("change", async () => {
      const file = input.files[0];
      if (!file) return;
      box.querySelector("[role=alert]").textContent = await load(file, document.getElementById(box.dataset.berthFile)).catch(
        () => `${file.name} can't be read: choose it again.`,
      );
    });
  });
})();
