// Makes policies/static/berth/codemirror.js of editor.js and what package-lock.json pins, with the licences of all that is in it.
const { readFileSync, readdirSync, writeFileSync, existsSync } = require("node:fs");
const { join } = require("node:path");
const { buildSync } = require("esbuild");

const out = process.argv[2] || join(__dirname, "../../policies/static/berth/codemirror.js");
const made = buildSync({
  entryPoints: [join(__dirname, "editor.js")],
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "BerthEditor",
  target: "es2020",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  write: false,
});
const folders = Object.keys(made.metafile.inputs)
  .map((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file))
  .filter(Boolean)
  .map((found) => found[1]);
const packages = [...new Set(folders)].sort();
const licences = packages.map((name) => {
  const folder = join(__dirname, "node_modules", name);
  const file = readdirSync(folder).find((each) => /^licen[sc]e/i.test(each));
  const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  if (!file || about.license !== "MIT") throw new Error(`${name}: look at its licence, ${about.license}`);
  return `${name} ${about.version}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});
const names = packages.map((name) => `${name} ${JSON.parse(readFileSync(join(__dirname, "node_modules", name, "package.json"), "utf8")).version}`);
const head = `/* Made by deploy/editor; don't edit. MIT, see codemirror.LICENSE.txt: ${names.join(", ")} */\n`;
writeFileSync(out, head + made.outputFiles[0].text);
writeFileSync(out.replace(/\.js$/, ".LICENSE.txt"), licences.join("\n---\n\n"));
