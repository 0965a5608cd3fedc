import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, posix, sep } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

/**
 * The folders of src, lowest row first, each with what it holds. A file imports only from lower rows and its own folder.
 * Folders of one row do not know each other. ARCHITECTURE.md shows this table.
 */
const ROWS: readonly Readonly<Record<string, string>>[] = [
  { base: "byte ranges, JSON scanner, id table, errors, events, runtime, paths, private files" },
  { scan: "texts of definitions that have no place there: checks, findings" },
  {
    jsonrpc: "JSON-RPC messages on their bytes: parse, edit, read and write lines",
    manifest: "what the user wants: files, schema, merge, trust, edits",
    terminal: "printing, log records, stderr",
  },
  {
    process: "child processes, groups, process table, orphans, path look-up, file lock",
    fleet: "what hubs say to each other on NATS, and the connection to it",
  },
  {
    transport: "messages to and from one server: stdio, memory, HTTP",
    catalog: "what clients see: names, URIs, sections, routes",
  },
  { protocol: "stateless codecs of the two protocol eras" },
  {
    secrets: "where secret values are kept",
    registry: "where servers are found that are in no manifest yet",
    "client-configs": "configuration files of MCP clients: import, install",
    snapshot: "saved listings of servers",
  },
  {
    auth: "OAuth tokens of servers: discovery, registration, login, refresh",
    approval: "which calls a person has to allow, and what was allowed",
    limits: "how many calls are let through: rates, quotas, places and the queue",
    telemetry: "traces and metrics: what is counted, and the formats in which it is read",
  },
  { pins: "which definitions of servers are accepted, and what happens with the others" },
  {
    upstream: "connections to servers: pool, state, sessions, listings",
    plugin: "the API for plugins, and what loads and runs them",
    "agent-files": "agents in files and from registries: reading, trust, store, pull",
  },
  { views: "what one client sees: its catalog, its connections, modes" },
  { router: "a client's request until its one answer" },
  { frontend: "the MCP server that clients see: stdio, HTTP, both eras" },
  {
    hub: "composition root; transports of servers, tokens of clients",
    agent: "agents: the loop over the hub's tools, and the models that it asks",
    recording: "record a hub, replay a recording",
    bench: "load generator, statistics, reports",
    demo: "the servers and the tour of `toolmux demo`",
  },
  { "agent-tools": "agents as MCP tools: the plugin `agents`, and the sessions of its clients" },
  {
    operations:
      "what toolmux does: check, import, install, log in, try a server, …; prints nothing",
  },
  { control: "a running hub, seen and steered from outside: its socket, its API, its events" },
  { attach: "how a process attaches its client to a hub that it shares with others" },
  { dashboard: "a page that shows running hubs and controls them" },
  { host: "opens a hub and serves it: frontends, socket, page, agents, recording, reload" },
  { cli: "the command line" },
  { main: "entry point" },
];

/** Packages and the only places that import them; a place is a file, a folder or the beginning of a name. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  valibot: [
    "src/manifest/",
    "src/plugin/",
    "src/registry/",
    "src/operations/",
    "src/control/",
    "src/dashboard/",
    "src/agent/",
    "src/agent-files/",
    "src/agent-tools/",
    "src/bench/",
  ],
  "@valibot/to-json-schema": ["src/control/json-schema.ts"],
  hono: ["src/frontend/http/", "src/control/", "src/dashboard/"],
  bun: ["src/base/runtime.ts"],
  "@ai-sdk": ["src/agent/"],
  "@nats-io": ["src/fleet/nats-bus.ts", "src/fleet/socket-transport.ts"],
  uplot: ["src/bench/report/", "src/dashboard/page/"],
  yaml: ["src/agent-files/yaml.ts"],
  "deno-std": ["src/cli/deno-parse-args.ts"],
  "hdr-histogram-js": ["src/bench/"],
  "@opentelemetry": ["src/telemetry/"],
  "@std/cli": ["src/cli/", "src/main.ts"],
  // Loading the SDK takes longer than starting toolmux: everywhere else it is an `await import()`.
  "@modelcontextprotocol": ["src/demo/", "src/agent-files/script-server.ts"],
};

/** Code, and the only places where it stands. */
const WORDS: Readonly<Record<string, { pattern: RegExp; places: readonly string[] }>> = {
  "process.env": {
    pattern: reading("env"),
    places: ["src/main.ts", "src/manifest/", "src/transport/stdio.ts", "src/base/runtime.ts"],
  },
  "process.exit": { pattern: reading("exit"), places: ["src/main.ts", "src/base/runtime.ts"] },
  console: {
    pattern: /\bconsole\s*\./,
    places: ["src/main.ts", "src/cli/commands/internal.ts", "src/terminal/stderr.ts", "src/demo/"],
  },
  // All that is shown on a terminal goes through `printLine` and `writeText`, which make visible what is no plain text.
  "a write to a terminal": {
    pattern: /\b(?:process|stdout|stderr)\.(?:stdout\.|stderr\.)?write\b/,
    places: ["src/terminal/", "src/cli/line-input.ts", "src/cli/prompt.ts"],
  },
  "what only Bun or Deno has": { pattern: /\b(?:Bun|Deno)\b/, places: ["src/base/runtime.ts"] },
  "the command line, stdin, stdout or stderr": {
    pattern: reading("(?:argv|stdin|stdout|stderr)"),
    places: [
      "src/main.ts",
      "src/cli/",
      "src/terminal/",
      "src/base/own-streams.ts",
      "src/base/runtime.ts",
      // Of a child process, which is called `process` there.
      "src/process/child-process.ts",
    ],
  },
  "an error class": { pattern: /\bextends\s+\w*Error\b/, places: ["src/base/errors.ts"] },
};

/** The parts of Node that open sockets and files. */
const OPENS = /^node:(?:dgram|fs|fs\/promises|http|http2|https|net|sqlite|tls)$/;

/**
 * What the command line may use although it opens something: `operations` and `host`, which do what the product does,
 * the client of a running hub, and the programs that a command starts as children.
 */
const DOORS: readonly string[] = [
  "src/agent-files/script-server.ts",
  "src/operations/",
  "src/host/",
  "src/control/running-hubs.ts",
  "src/control/running-hub-reader.ts",
  "src/control/sharing.ts",
  "src/bench/",
  "src/demo/",
];

/** Commands that read and write files that a person names, and folders of their own for a run. */
const OWN_FILES: readonly string[] = [
  "src/cli/call-arguments.ts",
  "src/cli/call-result.ts",
  "src/cli/commands/bench.ts",
  "src/cli/commands/call.ts",
  "src/cli/commands/chat.ts",
  "src/cli/commands/demo.ts",
  "src/cli/commands/replay.ts",
];

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

describe("the rows of src", () => {
  it("hold every file, and no folder that is not there", () => {
    const strays = sources.map(({ path }) => path).filter((path) => rankOf(path) === undefined);
    assert.deepEqual(strays, []);
    const folders = new Set(sources.map(({ path }) => folderOf(path)));
    assert.deepEqual(
      ROWS.flatMap((row) => Object.keys(row)).filter((name) => !folders.has(name)),
      [],
    );
  });

  it("are drawn in ARCHITECTURE.md (TOOLMUX_WRITE=1 draws them anew)", () => {
    const text = read("ARCHITECTURE.md");
    const drawn = text.replace(/(?<=<!-- rows -->\n)[\s\S]*?(?=<!-- end of rows -->)/, drawRows());
    if (process.env["TOOLMUX_WRITE"] === "1") writeFileSync(join(ROOT, "ARCHITECTURE.md"), drawn);
    else assert.equal(text, drawn);
    assert.match(drawn, /<!-- rows -->\n\n```\n/);
  });

  it("import only from lower rows and their own folder", () => {
    const wrong = imports.filter(({ from, to }) => to.startsWith("src/") && !mayImport(from, to));
    assert.deepEqual(wrong.map(arrow), []);
  });

  const EARLY = ["src/main.ts", "src/cli/serve-first.ts", "src/cli/commands/serve.ts"];

  it("load nothing of the hub before the manifest is known to be good, nor what is slower to load", () => {
    const { loaded, modules } = loadedFrom(EARLY);
    assert.ok(loaded.has("src/manifest/load.ts"));
    assert.ok(!loaded.has("src/hub/hub.ts"));
    assert.ok(!loaded.has("src/cli/commands.ts"), "the table of all commands");
    assert.deepEqual(
      modules.filter(({ to }) => to === "node:fs/promises"),
      [],
    );
  });

  it("load nothing that takes long before `serve` has answered for the first time", () => {
    const { loaded, modules } = loadedFrom([...EARLY, "src/host/serve-hub.ts"]);
    const slow = modules.filter(({ to }) => to.startsWith("node:") && !QUICK.includes(to));
    assert.deepEqual(slow.map(arrow), []);
    assert.ok(loaded.has("src/hub/hub.ts"));
    assert.ok(loaded.has("src/snapshot/disk.ts"), "the answer needs the servers' instructions");
    const late = ["src/transport/stdio.ts", "src/transport/http/transport.ts"];
    assert.deepEqual(
      late.filter((path) => loaded.has(path)),
      [],
    );
    const agents = [...loaded].filter((path) => /^src\/agent(?:-\w+)?\//.test(path));
    assert.deepEqual(agents, [], "agents are loaded when the first one runs");
    const fleet = [...loaded].filter((path) =>
      /^src\/(?:\w+\/nats|fleet|host\/fleet)\b/.test(path),
    );
    assert.deepEqual(fleet, [], "nothing of a fleet is loaded without one");
    assert.ok(loadedFrom(["src/host/fleet.ts"]).loaded.has("src/fleet/nats-bus.ts"));
    // With the plugin `agents`, only what lists its tools is loaded.
    const withPlugin = [...loadedFrom(["src/agent-tools/plugin.ts"]).loaded];
    assert.deepEqual(
      withPlugin.filter((path) => path.startsWith("src/agent/")),
      [],
    );
    assert.ok(!withPlugin.includes("src/agent-tools/agent-tools.ts"));
  });

  it("load neither a hub, nor what starts one, nor schemas of the control API to attach a client", () => {
    const { loaded, modules } = loadedFrom(["src/main.ts", "src/cli/attach-to-running-hub.ts"]);
    assert.ok(loaded.has("src/attach/relay.ts"));
    assert.ok(!loaded.has("src/cli/commands.ts"), "the table of all commands");
    assert.ok(!loaded.has("src/manifest/load.ts"), "the hub knows what is in the manifest");
    const unwanted =
      /^src\/(?:hub|frontend|router|catalog)\/|^src\/upstream\/(?:pool|connection)|^src\/control\/schemas|file-lock/;
    assert.deepEqual(
      [...loaded].filter((path) => unwanted.test(path)),
      [],
    );
    const slow = modules.filter(({ to }) => to.startsWith("node:") && !QUICK.includes(to));
    assert.deepEqual(slow.map(arrow), []);
    const asynchronous = modules.filter(({ to }) => to === "node:fs/promises");
    assert.deepEqual(asynchronous.map(arrow), [], "the hub's socket is found synchronously");
    assert.ok(!loadedFrom([...EARLY, "src/host/serve-hub.ts"]).loaded.has("src/attach/relay.ts"));
  });

  for (const name of ["call", "describe", "get", "list", "read", "status"]) {
    it(`load neither a hub nor the schemas of manifests before \`${name}\` knows that no hub runs`, () => {
      const { loaded } = loadedFrom([`src/cli/commands/${name}.ts`]);
      assert.ok(loaded.has("src/control/running-hubs.ts"));
      const unwanted = ["src/hub/hub.ts", "src/manifest/schema.ts", "src/upstream/session.ts"];
      assert.deepEqual(
        unwanted.filter((path) => loaded.has(path)),
        [],
      );
    });
  }

  it("load nothing that sends traces or metrics before the manifest or the environment says where to", () => {
    const commands = ["call", "run", "chat", "read", "get"].map(
      (name) => `src/cli/commands/${name}.ts`,
    );
    const { loaded } = loadedFrom(["src/host/serve-hub.ts", ...commands]);
    const sending =
      /^src\/(?:host\/telemetry|telemetry\/(?:hub-telemetry|exporter|collector|metric-exporter|otlp|settings))/;
    assert.deepEqual(
      [...loaded].filter((path) => sending.test(path)),
      [],
    );
    assert.ok([...loadedFrom(["src/host/telemetry.ts"]).loaded].some((path) => sending.test(path)));
  });

  it("load no streams of Node to start a server's process on Bun", () => {
    const { loaded, modules } = loadedFrom([
      "src/transport/stdio.ts",
      "src/process/bun-process.ts",
    ]);
    assert.ok(loaded.has("src/process/process-table.ts"));
    assert.ok(!loaded.has("src/process/node-process.ts"));
    const slow = modules.filter(({ to }) => /^node:(?:child_process|stream|net|events)\b/.test(to));
    assert.deepEqual(slow.map(arrow), []);
  });

  it("make the schemas of tables that few manifests have only when one has them", () => {
    const { code = "" } = sources.find(({ path }) => path === "src/manifest/schema.ts") ?? {};
    const made = [...code.matchAll(/^(?:export )?const (\w+Schema) = (\w+)/gm)];
    const atOnce = made.filter(([, , maker]) => maker !== "once").map(([, name]) => name);
    // The parts of the schema of a server, and parts that several schemas share.
    assert.deepEqual(atOnce, [
      "packageSchema",
      "oauthSchema",
      "reconnectSchema",
      "limitsSchema",
      "promptsSchema",
      "skillsSchema",
      "annotationsSchema",
      "toolsSchema",
      "serverSchema",
      "manifestServerSchema",
      "fileSchema",
    ]);
  });

  it("load no HTTP server for the commands that read a hub", () => {
    const names = ["status", "list", "describe", "call", "get", "read"];
    // Loaded by a command if no hub runs.
    const own = [
      "src/host/open-hub.ts",
      "src/host/opened-hub-reader.ts",
      "src/operations/load-manifest.ts",
      "src/operations/saved-catalog.ts",
      "src/operations/share.ts",
      "src/views/catalogs.ts",
      "src/frontend/hub-client.ts",
      "src/transport/http/transport.ts",
    ];
    const commands = names.map((name) => `src/cli/commands/${name}.ts`);
    const { loaded, modules } = loadedFrom([...commands, ...own]);
    assert.ok(loaded.has("src/control/local-hub-reader.ts"));
    assert.ok(loaded.has("src/control/running-hub-reader.ts"));
    assert.deepEqual(
      modules.filter(({ to }) => /^(?:@?hono\b|node:http2$)/.test(to)).map(arrow),
      [],
    );
    assert.ok(!loaded.has("src/control/api.ts"));
  });

  it("have no circle of run-time imports, and circles of type imports inside one folder only", () => {
    const atRunTime = imports.filter(({ isType }) => !isType);
    assert.deepEqual(findCircle(atRunTime), []);
    assert.deepEqual(
      findCircle(imports.filter(({ from, to }) => folderOf(from) !== folderOf(to))),
      [],
    );
  });

  it("import files that exist, by their whole names", () => {
    const wrong = imports.filter(
      ({ to, relative }) =>
        // What is built is in dist.
        relative &&
        !to.startsWith("dist/") &&
        !(/\.(?:tsx?|json|css)$/.test(to) && existsSync(join(ROOT, to))),
    );
    assert.deepEqual(wrong.map(arrow), []);
  });

  it("print nothing in operations, control and host", () => {
    const names = /\b(?:Terminal|StderrWriter|printLogRecord)\b/;
    const wrong = sources
      .filter(({ path }) => ["operations", "control", "host"].includes(folderOf(path)))
      .filter(
        (source) =>
          readImports(source).some(({ to }) => to === "node:tty") || names.test(source.code),
      );
    assert.deepEqual(
      wrong.map(({ path }) => path),
      [],
    );
  });

  it("open no hub, no socket and no file of the product in cli", () => {
    const ofCli = imports.filter(({ from, isType }) => folderOf(from) === "cli" && !isType);
    const own = ofCli.filter(({ to }) => OPENS.test(to));
    const files = own.filter(({ to }) => to === "node:fs/promises").map(({ from }) => from);
    assert.deepEqual(files.toSorted(), OWN_FILES);
    assert.deepEqual(own.filter(({ to }) => to !== "node:fs/promises").map(arrow), []);
    const wrong = ofCli
      .filter(({ to }) => to.startsWith("src/") && folderOf(to) !== "cli" && !isIn(DOORS, to))
      .filter(({ to }) => to === "src/hub/hub.ts" || opens(to));
    assert.deepEqual(wrong.map(arrow), []);
    assert.ok(opens("src/secrets/secrets.ts"));
    assert.ok(!opens("src/catalog/filter.ts"));
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
    assert.deepEqual([...new Set(wrong.map(({ from }) => from))], ["src/plugin/load.ts"]);
  });
});

describe("the files", () => {
  it("are named in lower case, with hyphens", () => {
    const wrong = everything
      .map(({ path }) => path)
      .filter((path) => {
        const name = posix.basename(path);
        return !/^[a-z][a-z0-9-]*(?:\.test|\.d)?\.(?:m?[jt]s|tsx)$/.test(name);
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

/** The pages for people, without the records of decisions. */
const DOCUMENTS: readonly string[] = [
  "README.md",
  "ARCHITECTURE.md",
  "CONTRIBUTING.md",
  "bench/README.md",
  ...listPages("docs"),
  ...listPages("docs/decisions"),
  ...listPages("plugins"),
];

/** Names of files of sources in a text: `hub.ts`, `src/hub/hub.ts`, in back-ticks or not. */
const FILE_NAME = /(?<![\w./*-])((?:[\w.-]+\/)*[\w-]+\.(?:tsx?|css))\b/g;

/** The files that a name in a comment stands for: from the comment's own folder, from src, or from the root. */
function filesNamed(name: string, from: string): readonly string[] {
  const places = [posix.join(posix.dirname(from), name), posix.join("src", name), name];
  return [...new Set(places)].filter((path) => existsSync(join(ROOT, path)));
}

describe("the names of files", () => {
  it("in comments of sources stand for exactly one file", () => {
    const wrong = sources.flatMap(({ path, comments }) =>
      comments
        .flatMap((comment) => [...comment.matchAll(FILE_NAME)].map(([, name = ""]) => name))
        .filter((name) => filesNamed(name, path).length !== 1)
        .map((name) => `${path}: ${name}`),
    );
    assert.deepEqual(wrong, []);
  });

  it("in ARCHITECTURE.md are paths from the root, and in its pictures paths from src", () => {
    const pictures = [...read("ARCHITECTURE.md").matchAll(/^```[\s\S]*?^```/gm)].map(
      ([text]) => text,
    );
    const text = pictures.reduce((rest, one) => rest.replace(one, ""), read("ARCHITECTURE.md"));
    const names = (part: string): readonly string[] =>
      [...part.matchAll(FILE_NAME)].map(([, name = ""]) => name);
    const drawn = pictures.flatMap(names);
    assert.ok(drawn.includes("router/router.ts"));
    const paths = [...names(text), ...drawn.map((name) => `src/${name}`)];
    assert.deepEqual(
      paths.filter((path) => !existsSync(join(ROOT, path))),
      [],
    );
  });
});

describe("the documents", () => {
  for (const document of DOCUMENTS) {
    it(`of the project name only paths that exist: ${document}`, () => {
      const paths = /`((?:src|plugins|bench|scripts|test|\.ci)\/[\w./-]*)`/g;
      const missing = [...read(document).matchAll(paths)]
        .map(([, path = ""]) => path)
        .filter((path) => !existsSync(join(ROOT, path)));
      assert.deepEqual(missing, []);
    });

    it(`of the project link only to what exists: ${document}`, () => {
      const links = /\]\((?!\w+:)([^()#\s]*)(?:#([\w-]+))?\)/g;
      const missing = [...read(document).matchAll(links)].filter(([, target = "", anchor]) => {
        const path = target === "" ? document : posix.join(posix.dirname(document), target);
        if (!existsSync(join(ROOT, path))) return true;
        return anchor !== undefined && !anchorsOf(path).includes(anchor);
      });
      assert.deepEqual(
        missing.map(([link]) => link),
        [],
      );
    });
  }
});

function listPages(folder: string): string[] {
  return readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => `${folder}/${name}`);
}

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(path: string): string[] {
  const text = read(path).replaceAll(/^```[\s\S]*?^```/gm, "");
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, "")
      .replaceAll(" ", "-"),
  );
}

function readSources(folder: string): Source[] {
  if (!existsSync(join(ROOT, folder))) return [];
  return readdirSync(join(ROOT, folder), { encoding: "utf8", recursive: true })
    .filter((file) => /\.(?:m?[jt]s|tsx)$/.test(file))
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

/** The folder of a file directly below src, or the name of a file that lies in src itself. */
function folderOf(path: string): string {
  const [, first = "", ...rest] = path.split("/");
  return rest.length > 0 ? first : first.replace(/\.ts$/, "");
}

function rankOf(path: string): number | undefined {
  const rank = ROWS.findIndex((row) => folderOf(path) in row);
  return rank === -1 ? undefined : rank;
}

function mayImport(from: string, to: string): boolean {
  if (folderOf(from) === folderOf(to)) return true;
  return (rankOf(to) ?? Infinity) < (rankOf(from) ?? -Infinity);
}

/** The rows as text, lowest first: the folders of a row stand together, rows apart. */
function drawRows(): string {
  const width =
    Math.max(...ROWS.flatMap((row) => Object.keys(row)).map(({ length }) => length)) + 2;
  const rows = ROWS.map((row) =>
    Object.entries(row)
      .map(([name, what]) => `${name.padEnd(width)}${what}`)
      .join("\n"),
  );
  return `\n\`\`\`\n${rows.join("\n\n")}\n\`\`\`\n\n`;
}

function isIn(places: readonly string[], path: string): boolean {
  return places.some((place) => path.startsWith(place));
}

function arrow({ from, to }: Import): string {
  return `${from} → ${to}`;
}

/** Whether a file, or what it loads, opens sockets or files; `base` and `terminal` count for nothing. */
function opens(file: string): boolean {
  const seen = new Set([file]);
  for (const path of seen) {
    if (["base", "terminal"].includes(folderOf(path))) continue;
    for (const each of imports) {
      if (each.from !== path || each.isType) continue;
      if (OPENS.test(each.to)) return true;
      if (each.to.startsWith("src/")) seen.add(each.to);
    }
  }
  return false;
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

/** The files of one circle of imports, the first one again at the end; empty if there is none. */
function findCircle(among: readonly Import[]): string[] {
  const targets = Map.groupBy(among, ({ from }) => from);
  const done = new Set<string>();
  const visit = (path: string, trail: readonly string[]): string[] => {
    if (trail.includes(path)) return [...trail.slice(trail.indexOf(path)), path];
    if (done.has(path)) return [];
    for (const { to } of targets.get(path) ?? []) {
      const circle = visit(to, [...trail, path]);
      if (circle.length > 0) return circle;
    }
    done.add(path);
    return [];
  };
  for (const { path } of sources) {
    const circle = visit(path, []);
    if (circle.length > 0) return circle;
  }
  return [];
}

describe("the scripts that run before there is a bun", () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
    scripts: Readonly<Record<string, string>>;
  };
  const files = new Set(
    Object.values(scripts).flatMap((line) =>
      [...line.matchAll(/\bnode (scripts\/\S+)/g)].map(([, file = ""]) => file),
    ),
  );

  for (const file of files) {
    it(`need nothing but Node 20: ${file}`, () => {
      const text = readFileSync(join(ROOT, file), "utf8");
      const packages = [...text.matchAll(/\bfrom "(?!node:)([^"]+)"/g)].map(([, name]) => name);
      assert.deepEqual(packages, []);
      // Functions of Node 21 and 22.
      const newer =
        /\b(?:Map|Object)\.groupBy\b|\bPromise\.(?:withResolvers|try)\b|\bArray\.fromAsync\b|\bgetBuiltinModule\b|\bglobSync\b|\bstyleText\b/;
      assert.doesNotMatch(text, newer);
      assert.match(file, /\.mjs$/);
    });
  }

  it("are the first part of npm start and npm test", () => {
    for (const name of ["start", "test"])
      assert.match(scripts[name] ?? "", /^node scripts\/\S+\.mjs /);
  });
});
