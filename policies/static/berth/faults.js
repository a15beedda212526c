// Faults while one types: the form as it is so far is sent to the door that checks it, and the list above it follows.
// Without this script the list comes with the page that a refused save shows.
(function () {
  "use strict";
  const pause = 700;
  const signedOut = "You are signed out, or signed in again in another tab: copy what you have typed, then reload the page.";
  let timer = 0;
  let asked = null;

  function entry(fault) {
    const item = document.createElement("li");
    if (fault.field) {
      const link = document.createElement("a");
      link.className = "berth-link";
      link.href = "#" + fault.field;
      link.textContent = fault.where;
      item.append(link, ": ");
    } else if (fault.where) {
      item.append(fault.where + ": ");
    }
    item.append(fault.message);
    return item;
  }

  function say(box, faults) {
    box.classList.toggle("berth-hidden", faults.length === 0);
    box.querySelector("#faults-count").textContent = faults.length;
    box.querySelector("#faults-list").replaceChildren(...faults.map(entry));
    document.querySelectorAll(".berth-fault-now").forEach((said) => said.remove());
    const faulty = new Set(faults.map((fault) => fault.field));
    document.querySelectorAll("#content-main .errorlist").forEach((list) => {
      const field = list.parentElement.querySelector("input[id], select[id], textarea[id]");
      if (field && !faulty.has(field.id)) list.remove();
    });
    faults.forEach((fault) => {
      const field = fault.field && document.getElementById(fault.field);
      if (!field || field.parentElement.querySelector(".errorlist")) return;
      const said = document.createElement("p");
      said.className = "berth-error berth-fault-now";
      said.textContent = fault.message;
      field.after(said);
    });
    document.dispatchEvent(new CustomEvent("berth:faults", { detail: faults }));
  }

  // Goes to the field that a fault or a link names, also inside a part that is folded.
  function reveal(hash) {
    const field = document.getElementById(hash.slice(1));
    if (!field) return false;
    for (let part = field.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    field.scrollIntoView({ block: "center" });
    field.focus({ preventScroll: true });
    field.dispatchEvent(new CustomEvent("berth:focus"));
    return true;
  }

  function check(box, form) {
    if (asked) asked.abort();
    asked = new AbortController();
    fetch(box.dataset.berthCheck, { method: "POST", body: new FormData(form), signal: asked.signal })
      // To the sign-in, or for another session than the form's: said now, not when all is typed and saved.
      .then((response) => {
        if (response.redirected || response.status === 403) return { faults: [{ message: signedOut }] };
        return response.ok ? response.json() : null;
      })
      .then((found) => found && found.faults && say(box, found.faults))
      // A check that was overtaken, or a server that is away: saving says what is wrong all the same.
      .catch((error) => error.name !== "AbortError" && console.warn("not checked: " + error));
  }

  document.addEventListener("DOMContentLoaded", () => {
    const box = document.querySelector("[data-berth-check]");
    const form = document.querySelector("#content-main > form") || document.getElementById("text-form");
    if (!box || !form) return;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(() => check(box, form), pause);
    };
    form.addEventListener("input", later);
    form.addEventListener("change", later);
    document.getElementById("editor-top").addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      if (link && reveal(link.hash)) event.preventDefault();
    });
    if (location.hash) reveal(location.hash);
  });
})();
