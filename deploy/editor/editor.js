// Berth's editor of expressions and documents: CodeMirror 6 over a textarea, which stays what the form sends.
//
// Styles: CodeMirror makes style sheets while it runs, which the pages' Content-Security-Policy refuses as <style> elements.
// Inside a shadow root it adopts constructed sheets instead, which need no exception.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, StreamLanguage, bracketMatching, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const KEYWORDS = new Set(["true", "false", "null", "in"]);
const VARIABLES = new Set(["pod", "requests", "namespaceObject", "node", "usage", "victim", "params", "now", "topology", "cluster"]);

const cel = StreamLanguage.define({
  name: "cel",
  token(stream) {
    if (stream.eatSpace()) return null;
    if (stream.match("//")) {
      stream.skipToEnd();
      return "comment";
    }
    if (stream.match(/^[rRbB]{0,2}("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)/)) return "string";
    if (stream.match(/^\d+(\.\d+)?([eE][-+]?\d+)?u?/)) return "number";
    const word = stream.match(/^[A-Za-z_]\w*/);
    if (word) {
      if (KEYWORDS.has(word[0])) return "bool";
      if (stream.peek() === "(") return "function";
      return VARIABLES.has(word[0]) ? "variableName" : "propertyName";
    }
    stream.next();
    return "operator";
  },
  tokenTable: { function: tags.function(tags.variableName) },
});

const colours = HighlightStyle.define([
  { tag: tags.string, color: "var(--berth-code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--berth-code-number)" },
  { tag: [tags.variableName, tags.keyword], color: "var(--berth-code-name)", fontWeight: "600" },
  { tag: tags.function(tags.variableName), color: "var(--berth-code-function)" },
  { tag: [tags.definition(tags.propertyName)], color: "var(--berth-code-name)" },
  { tag: tags.comment, color: "var(--berth-code-comment)", fontStyle: "italic" },
]);

const look = EditorView.theme({
  "&": {
    color: "var(--berth-code-text)",
    backgroundColor: "var(--berth-code-background)",
    border: "1px solid var(--berth-code-border)",
    borderRadius: "6px",
    fontSize: "0.82rem",
    maxHeight: "var(--berth-code-height, none)",
  },
  "&.cm-focused": { outline: "2px solid var(--berth-code-focus)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace", lineHeight: "1.5", overflow: "auto" },
  ".cm-content": { caretColor: "var(--berth-code-text)", padding: "0.4rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--berth-code-text)" },
  ".cm-gutters": { color: "var(--berth-code-comment)", backgroundColor: "transparent", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--berth-code-line)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--berth-code-selection)",
  },
  ".cm-tooltip": {
    color: "var(--berth-code-text)",
    backgroundColor: "var(--berth-code-popup)",
    border: "1px solid var(--berth-code-border)",
    borderRadius: "6px",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { maxHeight: "16rem", fontFamily: "inherit" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": {
    color: "var(--berth-code-text)",
    backgroundColor: "var(--berth-code-selection)",
  },
  ".cm-completionInfo": { maxWidth: "22rem", padding: "0.5rem 0.75rem" },
  ".cm-completionDetail": { color: "var(--berth-code-comment)", fontStyle: "normal" },
  ".cm-diagnostic": { padding: "0.3rem 0.6rem" },
});

// Puts an editor over a textarea.
//
// given: language "cel" or "yaml"; label for readers of the screen; complete(before) returns null, or
// {from, options: [{label, detail, info, apply}]} with from as an offset in the text before the cursor, or a promise of it.
// Returns {view, show(diagnostics)}: [{line, column, message}], counted from 1; without a line it is of the whole text.
export function mount(textarea, given) {
  const host = document.createElement("div");
  host.className = "berth-cm";
  const root = host.attachShadow({ mode: "open" });
  textarea.before(host);
  let ours = false;
  const isYAML = given.language === "yaml";
  const source = async (context) => {
    const before = context.state.sliceDoc(0, context.pos);
    const found = await given.complete(before, context.explicit);
    return found && { from: found.from, options: found.options, validFor: /^\w*$/ };
  };
  const extensions = [
    history(),
    drawSelection(),
    bracketMatching(),
    closeBrackets(),
    indentOnInput(),
    highlightActiveLine(),
    lintGutter(),
    syntaxHighlighting(colours),
    look,
    EditorView.lineWrapping,
    EditorState.tabSize.of(2),
    EditorView.contentAttributes.of({ "aria-label": given.label || "Text", spellcheck: "false" }),
    // Tab goes on to the next field, as everywhere in a form.
    keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
    EditorView.updateListener.of((update) => {
      if (!update.docChanged || ours) return;
      textarea.value = update.state.doc.toString();
      ours = true;
      textarea.dispatchEvent(new Event("input", { bubbles: true }));
      ours = false;
    }),
  ];
  if (given.complete) extensions.push(autocompletion({ override: [source], icons: false }));
  extensions.push(isYAML ? [lineNumbers(), yaml()] : cel);
  const view = new EditorView({ state: EditorState.create({ doc: textarea.value, extensions }), parent: root, root });
  textarea.classList.add("berth-under-cm");
  textarea.tabIndex = -1;
  textarea.setAttribute("aria-hidden", "true");
  textarea.addEventListener("berth:focus", () => view.focus());
  // What else writes into the textarea: a test's fill, a browser that fills in forms.
  textarea.addEventListener("input", () => {
    const text = textarea.value.replace(/\r\n?/g, "\n");
    if (ours || text === view.state.doc.toString()) return;
    ours = true;
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    ours = false;
  });
  const place = (found) => {
    const doc = view.state.doc;
    if (!found.line) return { from: 0, to: doc.length };
    const line = doc.line(Math.min(found.line, doc.lines));
    const from = Math.min(line.from + Math.max((found.column || 1) - 1, 0), line.to);
    const rest = /^\w+/.exec(doc.sliceString(from, line.to));
    return { from, to: found.column ? Math.min(from + (rest ? rest[0].length : 1), line.to) : line.to };
  };
  const show = (diagnostics) =>
    view.dispatch(
      setDiagnostics(
        view.state,
        diagnostics.map((found) => ({ ...place(found), severity: "error", message: found.message })),
      ),
    );
  const goTo = (line) => {
    const at = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
    view.dispatch({ selection: { anchor: at.from }, scrollIntoView: true });
    view.focus();
  };
  return { view, show, goTo, host };
}
