import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, posix, sep } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

/** Lowest first. Layers of one row do not know each other; `base` is what lies directly in src/. */
const LAYERS: readonly (readonly string[])[] = [
  ["base"],
  ["manifest"],
  ["wire", "catalog"],
  ["secrets", "protocol", "snapshot", "directory", "clients"],
  ["auth", "upstream", "plugin"],
  ["router", "doctor"],
  ["frontend"],
  ["hub"],
  ["bench", "recording"],
  ["cli"],
  ["main"],
];

/** Packages and the only places that import them; a place is a file, a folder or the beginning of a name. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  valibot: ["src/manifest/", "src/plugin/", "src/directory/"],
  hono: ["src/frontend/http/"],
  bun: ["src/base/runtime.ts"],
  uplot: ["src/cli/bench/"],
  "deno-std": ["src/vendor/"],
  "@logtape/logtape": ["src/terminal/logtape.ts"],
  "hdr-histogram-js": ["src/bench/"],
  "@std/cli": ["src/cli/", "src/main.ts"],
  // Loading the SDK takes longer than starting toolmux: everywhere else it is an `await import()`.
  "@modelcontextprotocol": ["src/cli/demo"],
};

/** Code, and the only places where it stands. */
const WORDS: Readonly<Record<string, { pattern: RegExp; places: readonly string[] }>> = {
  "process.env": {
    pattern: reading("env"),
    places: ["src/main.ts", "src/manifest/", "src/transport/stdio.ts", "src/base/runtime.ts"],
  },
  "process.exit": { pattern: reading("exit"), places: ["src/main.ts", "src/base/runtime.ts"] },
  console: { pattern: /\bconsole\s*\./, places: ["src/main.ts", "src/cli/"] },
  "what only Bun or Deno has": { pattern: /\b(?:Bun|Deno)\b/, places: ["src/base/runtime.ts"] },
  "an error class": { pattern: /\bextends\s+\w*Error\b/, places: ["src/base/errors.ts"] },
};

/** The parts of Node that are loaded in less than a millisecond. */
const QUICK = ["node:buffer", "node:fs/promises", "node:path", "node:process", "node:timers"];

/** Dates that are the names of protocol revisions. */
const REVISIONS = /2024-10-07|2024-11-05|2025-03-26|2025-06-18|2025-11-25|2026-07-28/g;

const MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec";

const HISTORY: Readonly<Record<string, RegExp>> = {
  "a phase": /\b(?:phase|milestone|sprint)\s*#?\d/i,
  "a ticket": /(?:^|[\s(])#\d+\b|\b(?:issue|ticket|bug|pr|pull request)s?\s*#?\d/i,
  "a date": new RegExp(
    `\\b20\\d\\d-\\d\\d-\\d\\d\\b|\\b(?:${MONTHS})[a-z]*\\.? [\\d, ]*20\\d\\d\\b`,
    "i",
  ),
  "a line of a file": /\w\.(?:[cm]?[jt]s|json|toml|md|py|go|rs):\d/,
};

interface Source {
  /** From the root of the repository, with slashes. */
  readonly path: string;
  readonly text: string;
  /** The text without comments, regular expressions, and strings other than what is imported. */
  readonly code: string;
  readonly comments: readonly string[];
}

interface Import {
  readonly from: string;
  /** A path from the root of the repository, or a package. */
  readonly to: string;
  readonly relative: boolean;
  readonly dynamic: boolean;
  /** Gone when it runs. */
  readonly isType: boolean;
}

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const everything = ["src", "plugins", "bench", "scripts", "test"].flatMap(readSources);
const sources = everything.filter(({ path }) => path.startsWith("src/"));
const imports = sources.flatMap(readImports);

describe("the layers of src", () => {
  it("hold every file", () => {
    const strays = sources.map(({ path }) => path).filter((path) => rankOf(path) === undefined);
    assert.deepEqual(strays, []);
  });

  it("import only from lower layers and their own folder", () => {
    const wrong = imports.filter(({ from, to }) => to.startsWith("src/") && !mayImport(from, to));
    assert.deepEqual(wrong.map(arrow), []);
  });

  const EARLY = ["src/main.ts", "src/cli/commands.ts", "src/cli/commands/serve.ts"];

  it("load nothing of the hub before the manifest is known to be good, nor what is slower to load", () => {
    const { loaded, modules } = loadedFrom(EARLY);
    assert.ok(loaded.has("src/manifest/load.ts"));
    assert.ok(!loaded.has("src/hub/hub.ts"));
    assert.deepEqual(
      modules.filter(({ to }) => to === "node:fs/promises"),
      [],
    );
  });

  it("load nothing that takes long before `serve` has answered for the first time", () => {
    const { loaded, modules } = loadedFrom([...EARLY, "src/cli/serve-hub.ts"]);
    const slow = modules.filter(({ to }) => to.startsWith("node:") && !QUICK.includes(to));
    assert.deepEqual(slow.map(arrow), []);
    assert.ok(loaded.has("src/hub/hub.ts"));
  });

  it("have no cycle of imports, type imports included", () => {
    assert.deepEqual(findCycle(), []);
  });

  it("import files that exist, by their whole names", () => {
    const wrong = imports.filter(
      ({ to, relative }) =>
        relative && !(/\.(?:ts|json|css)$/.test(to) && existsSync(join(ROOT, to))),
    );
    assert.deepEqual(wrong.map(arrow), []);
  });

  for (const [name, places] of Object.entries(PACKAGES)) {
    it(`import ${name} only where it belongs`, () => {
      const wrong = imports
        .filter(({ to }) => to === name || to.startsWith(`${name}/`) || to.startsWith(`${name}:`))
        .filter(({ dynamic }) => !(dynamic && name === "@modelcontextprotocol"))
        .filter(({ from }) => !isIn(places, from));
      assert.deepEqual(wrong.map(arrow), []);
    });
  }

  for (const [word, { pattern, places }] of Object.entries(WORDS)) {
    it(`have ${word} only where it belongs`, () => {
      const wrong = sources.filter(({ path, code }) => pattern.test(code) && !isIn(places, path));
      assert.deepEqual(
        wrong.map(({ path }) => path),
        [],
      );
    });
  }
});

describe("the plugins", () => {
  it("import only src/plugin/plugin.ts, their own folder, and packages", () => {
    const ownFolder = (path: string): string => path.split("/").slice(0, 2).join("/");
    const wrong = everything
      .filter(({ path }) => path.startsWith("plugins/"))
      .flatMap(readImports)
      .filter(({ relative }) => relative)
      .filter(({ from, to }) => to !== "src/plugin/plugin.ts" && ownFolder(to) !== ownFolder(from));
    assert.deepEqual(wrong.map(arrow), []);
  });

  it("are imported only where the built-in ones are named", () => {
    const wrong = imports.filter(({ to }) => to.startsWith("plugins/"));
    assert.deepEqual([...new Set(wrong.map(({ from }) => from))], ["src/plugin/builtin.ts"]);
  });
});

describe("the files", () => {
  it("are named in lower case, with hyphens", () => {
    const wrong = everything
      .map(({ path }) => path)
      .filter((path) => !path.startsWith("src/vendor/"))
      .filter((path) => {
        const name = posix.basename(path);
        return !/^[a-z][a-z0-9-]*(?:\.test|\.d)?\.m?[jt]s$/.test(name);
      });
    assert.deepEqual(wrong, []);
  });

  for (const [what, pattern] of Object.entries(HISTORY)) {
    it(`have no comment that mentions ${what}`, () => {
      const wrong = everything.flatMap(({ path, comments }) =>
        comments
          .filter((comment) => pattern.test(comment.replaceAll(REVISIONS, "")))
          .map((comment) => `${path}: ${comment}`),
      );
      assert.deepEqual(wrong, []);
    });
  }
});

describe("the documents", () => {
  for (const document of ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]) {
    it(`of the project name only paths that exist: ${document}`, () => {
      const paths = /`((?:src|plugins|bench|scripts|test|\.ci)\/[\w./-]*)`/g;
      const missing = [...read(document).matchAll(paths)]
        .map(([, path = ""]) => path)
        .filter((path) => !existsSync(join(ROOT, path)));
      assert.deepEqual(missing, []);
    });
  }
});

function readSources(folder: string): Source[] {
  if (!existsSync(join(ROOT, folder))) return [];
  return readdirSync(join(ROOT, folder), { encoding: "utf8", recursive: true })
    .filter((file) => /\.m?[jt]s$/.test(file))
    .map((file) => `${folder}/${file.replaceAll(sep, "/")}`)
    .toSorted()
    .map((path) => ({ path, text: read(path), ...scan(read(path)) }));
}

/** A member of `process`, also when it was destructured or imported by its name. */
function reading(member: string): RegExp {
  return new RegExp(
    `\\bprocess\\s*\\.\\s*${member}\\b|\\{[^{}]*\\b${member}\\b[^{}]*\\}\\s*(?:=\\s*process\\b|from\\s*["'](?:node:)?process["'])`,
  );
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}

/** Finds comments, and drops what only looks like code: a scanner of tokens, good for formatted sources. */
function scan(text: string): Pick<Source, "code" | "comments"> {
  const comment = /\/\/[^\n]*|\/\*[\s\S]*?\*\//;
  const string = /"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/;
  const template = /`(?:\\.|\$\{(?:[^{}`]|`[^`]*`|\{[^{}]*\})*\}|[^`\\])*`/;
  const regex = /(?<=[(,=:[!&|?{};>]\s*|\breturn\s+)\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\//;
  const token = [comment, string, template, regex].map(({ source }) => `(${source})`).join("|");
  const comments: string[] = [];
  const code = text.replaceAll(new RegExp(token, "g"), (match: string, ...found: unknown[]) => {
    const [isComment, isString, isTemplate, , at] = found;
    if (isComment !== undefined) {
      comments.push(match);
      return " ";
    }
    if (isTemplate !== undefined) return match;
    if (isString === undefined) return "/./";
    const before = text.slice(Math.max(0, Number(at) - 20), Number(at));
    return /\b(?:from|import)\s*\(?\s*$/.test(before) ? match : '""';
  });
  return { code, comments };
}

function readImports({ path, code }: Source): Import[] {
  const statement =
    /\b(?:import|export)\b[^;"'`]*?\bfrom\s*["']([^"']+)["']|\bimport\s*["']([^"']+)["']|\bimport\s*\(\s*["']([^"']+)["']/g;
  return [...code.matchAll(statement)].map(([whole, from, bare, called]) => {
    const to = from ?? bare ?? called ?? "";
    const relative = to.startsWith(".");
    return {
      from: path,
      to: relative ? posix.join(posix.dirname(path), to) : to,
      relative,
      dynamic: called !== undefined,
      isType: /^\w+\s+type\b/.test(whole),
    };
  });
}

/** The folder of a file of src, or what it is by itself. */
function layerOf(path: string): string {
  const [, first = "", ...rest] = path.split("/");
  if (rest.length > 0) return first;
  return first === "hub.ts" || first === "main.ts" ? first.slice(0, -3) : "base";
}

/** Vendored code stands below everything. */
function rankOf(path: string): number | undefined {
  const layer = layerOf(path);
  if (layer === "vendor") return -1;
  const rank = LAYERS.findIndex((row) => row.includes(layer));
  return rank === -1 ? undefined : rank;
}

function mayImport(from: string, to: string): boolean {
  if (layerOf(from) === layerOf(to)) return true;
  if (layerOf(to) === "vendor") return isIn(["src/cli/", "src/main.ts"], from);
  return (rankOf(to) ?? Infinity) < (rankOf(from) ?? -Infinity);
}

function isIn(places: readonly string[], path: string): boolean {
  return places.some((place) => path.startsWith(place));
}

function arrow({ from, to }: Import): string {
  return `${from} → ${to}`;
}

/** All that is loaded with these files, and what of it are modules of others. */
function loadedFrom(files: readonly string[]): {
  readonly loaded: ReadonlySet<string>;
  readonly modules: readonly Import[];
} {
  const loaded = new Set(files);
  const modules: Import[] = [];
  for (const path of loaded) {
    for (const each of imports) {
      if (each.from !== path || each.dynamic || each.isType) continue;
      if (each.relative) loaded.add(each.to);
      else modules.push(each);
    }
  }
  return { loaded, modules };
}

/** The files of one cycle, the first one again at the end; empty if there is none. */
function findCycle(): string[] {
  const targets = Map.groupBy(imports, ({ from }) => from);
  const done = new Set<string>();
  const visit = (path: string, trail: readonly string[]): string[] => {
    if (trail.includes(path)) return [...trail.slice(trail.indexOf(path)), path];
    if (done.has(path)) return [];
    for (const { to } of targets.get(path) ?? []) {
      const cycle = visit(to, [...trail, path]);
      if (cycle.length > 0) return cycle;
    }
    done.add(path);
    return [];
  };
  for (const { path } of sources) {
    const cycle = visit(path, []);
    if (cycle.length > 0) return cycle;
  }
  return [];
}
