import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { COMMANDS } from "../../src/cli/commands.ts";
import { EXIT_LIMIT, executable, itWith, withTestFolder } from "../harness/hub.ts";
import type { Manifest } from "../harness/manifest.ts";
import { RawClient } from "../harness/raw-client.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";

const SERVER = fileURLToPath(new URL("../fixtures/servers/hostile-text.mjs", import.meta.url));
/** Colors, a title of the window, C1, bidi and zero-width characters, and a line that looks like our own. */
const HOSTILE =
  "A\u001b[31mEVIL\u001b]0;t\u0007\u009b2J\u0085\u202ecba\u2066\u200bz\ufeff\u{e0041}\u061c\u2060\rB\nFORGED";
const LINE = HOSTILE.replaceAll("\n", " ");

const MANIFEST: Manifest = {
  servers: {
    good: {
      command: process.execPath,
      args: [SERVER, HOSTILE],
      env: { A: LINE },
      tools: { limits: { [LINE]: { maxConcurrent: 1 } } },
    },
    dead: { command: "sh", args: ["-c", 'printf "%s\\n" "$0" >&2; exit 3', HOSTILE] },
    asked: { command: process.execPath, args: [SERVER, HOSTILE] },
    missing: { command: LINE },
  },
  modes: { m: { title: HOSTILE, description: LINE, tools: { servers: [LINE] } } },
  models: { s: { provider: "script", script: "turns.toml" } },
  agents: { a: { model: "s", instruction: "Say it.", description: LINE, tools: "all" } },
};

/**
 * What each command is given, apart from the hostile text alone as an argument. A word that is `HOSTILE` is that text.
 * Every command needs an entry.
 */
const LINES: Readonly<Record<string, readonly string[]>> = {
  import: ["import --dry-run", "import cursor"],
  add: ["add other HOSTILE --dry-run", "add HOSTILE -- x"],
  install: ["install cursor --dry-run"],
  status: ["status", "status --json"],
  list: ["list", "list --all", "list --json", "list prompts", "list resources", "list servers"],
  describe: ["describe good__t", "describe good__t --json"],
  call: ["call good__t", "call good__t HOSTILE=HOSTILE", "call good__t --raw -j '{}'"],
  run: ["run a HOSTILE"],
  chat: ["chat a"],
  agents: [
    "agents",
    "agents --json",
    "agents show AGENTS/hostile.toml",
    "agents show AGENTS/broken.json",
  ],
  find: ["find HOSTILE --explain", "find text"],
  get: ["get good__p", "get good__p HOSTILE=1"],
  read: ["read x://a"],
  search: ["search --from http://127.0.0.1:1/HOSTILE x"],
  remove: [],
  enable: [],
  disable: [],
  edit: [],
  clients: ["clients list"],
  auth: ["auth status", "auth login good"],
  secret: ["secret list", "secret set HOSTILE"],
  trust: ["trust hostile.toml"],
  ps: ["ps"],
  dashboard: ["dashboard --port 0 --no-browser"],
  start: ["start dead"],
  stop: ["stop dead"],
  reconnect: ["reconnect dead"],
  refresh: ["refresh good"],
  cancel: ["cancel 999"],
  mode: ["mode show m", "mode list"],
  reload: ["reload"],
  calls: ["calls", "calls --watch"],
  logs: ["logs", "logs --json"],
  events: ["events"],
  alerts: ["alerts"],
  limits: ["limits"],
  approvals: ["approvals", "approvals --remembered"],
  pins: ["pins", "pins --json"],
  scan: ["scan", "scan --json"],
  check: ["check", "check --json", "check --config bad.toml", "check --config broken.toml"],
  doctor: ["doctor --connect"],
  demo: [],
  bench: [],
  replay: ["replay hostile.toml"],
  schema: [],
  completions: ["completions bash"],
  help: ["help"],
  version: ["version"],
  serve: ["serve"],
  // As serve, and it would leave a hub.
  attach: [],
  daemon: ["daemon status"],
  service: ["service status"],
  share: ["share"],
  fleet: ["fleet", "fleet ping"],
};

/** What a terminal may get from us: our colors, and what clears a status line or the screen. */
// oxlint-disable-next-line no-control-regex
const OWN = /\u001b\[\d{1,2}m|\r\u001b\[K|\u001b\[H\u001b\[2J/g;
const BAD =
  // oxlint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]|\r(?!\n)|^FORGED/mu;

describe("a text of others", () => {
  itWith({ skip: skipWithoutTerminal, timeout: 400_000 })(
    "moves no terminal, hides nothing and begins no line, whatever command shows it",
    () =>
      withTestFolder(MANIFEST, async (folder) => {
        const { dir, env, config } = folder;
        const write = (name: string, text: string): void => writeFileSync(join(dir, name), text);
        const agents = join(env["XDG_CONFIG_HOME"] ?? assert.fail(), "toolmux/agents");
        mkdirSync(agents, { recursive: true });
        const key = JSON.stringify(HOSTILE);
        write("turns.toml", `[[turns]]\ntext = ${JSON.stringify(LINE)}\n`);
        write(
          "hostile.toml",
          `[agents.root]\nmodel = ${key}\ninstruction = "x"\ndescription = ${key}\n`,
        );
        write("broken.json", `{"agents": {${key}: {${key}: ${key}}}}`);
        write(
          "bad.toml",
          `[servers.x]\ncommand = "x"\n${key} = ${key}\n[servers.${key}]\ncommand = ${key}\n`,
        );
        write("broken.toml", `[servers.x]\ncommand = ${LINE}\n`);
        write("hostile.txt", HOSTILE);
        for (const name of ["hostile.toml", "broken.json"])
          copyFileSync(join(dir, name), join(agents, name));
        const names = COMMANDS.map(({ name }) => name);
        assert.deepEqual(
          Object.keys(LINES).toSorted(),
          [...new Set([...names, "serve"])].toSorted(),
        );

        const hub = new RawClient(executable(), ["--config", config], dir, env);
        await hub.initializeAndList();
        hub.sendCall("good__t", {});
        const all = Object.entries(LINES).flatMap(([name, own]) => [`${name} HOSTILE`, ...own]);
        const isEndless = (line: string): boolean =>
          /^(?:dashboard --|calls --watch|events$)/.test(line);
        const runOf = (line: string): string => {
          const words = line.replaceAll("HOSTILE", '"$H"').replace("AGENTS", agents);
          const manifest = line.includes("--config") ? "" : ` --config ${config}`;
          return `timeout ${isEndless(line) ? 2 : 20} ${executable()} ${words}${manifest} </dev/null`;
        };
        // Those that do not end by themselves run at the same time.
        const endless = all.filter(isEndless);
        const lines = [...all.filter((line) => !isEndless(line)), endless.join(", ")];
        const runs = [...lines.slice(0, -1).map(runOf), `${endless.map(runOf).join(" & ")} & wait`];
        const script = runs.map((run, at) => `printf '\\n@@${at}\\n'; ${run}\n`);
        write(
          "all.sh",
          `H=$(cat hostile.txt)\nstty cols 150\n${script.join("")}printf '\\n@@end\\n'\n`,
        );
        const terminal = startInTerminal(folder, "sh all.sh");
        await terminal.until(
          380_000,
          "the last command",
          () => terminal.lines.some(({ text }) => text.startsWith("@@end")) || undefined,
        );
        hub.end();
        await hub.waitForExit(EXIT_LIMIT);
        const shown = shownBy(terminal)
          .split(/^@@(?:\d+|end)\r?$/m)
          .slice(1, -1);
        assert.equal(shown.length, lines.length);
        const faults = shown.flatMap((text, at) => {
          const bad = BAD.exec(text.replaceAll(OWN, ""));
          const forged = text.includes("\u001b[31mEVIL");
          if (bad === null && !forged) return [];
          const rest = text.replaceAll(OWN, "");
          const place =
            bad === null
              ? "its colour"
              : JSON.stringify(rest.slice(Math.max(0, bad.index - 60), bad.index + 40));
          return [`toolmux ${lines[at]}: ${place}`];
        });
        assert.deepEqual(faults, []);
        const telling = shown.filter((text) => text.includes("EVIL"));
        assert.ok(telling.length > lines.length / 3, `only ${telling.length} showed the text`);
      }),
  );
});
