import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { SCENES, type Scene, type Showing } from "../fixtures/docs-scenes.ts";
import { runJson, waitUntilFound } from "../harness/command.ts";
import { closeClient, EXIT_LIMIT, executable, itWith, withTestFolder } from "../harness/hub.ts";
import { RawClient } from "../harness/raw-client.ts";
import { findPort } from "../harness/remote-process.ts";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";
import { firstDifference, readSnippets, type Snippet } from "../harness/snippets.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const missing = missingPrograms(["curl", "jq", "node"]);
const it = itWith({
  skip:
    skipWithoutTerminal ||
    skipWithout({
      isMet: missing.length === 0,
      tests: "the commands that the documentation shows",
      remedy: `install ${missing.join(", ")}`,
    }),
});

/** A terminal of this width breaks none of the lines. */
const COLUMNS = 400;

/** The home folder in which a scene is played. */
class Stage {
  readonly #home: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #port: string;
  readonly #cwd: string;
  readonly #http: string;
  readonly #outputs = new Map<string, string>();
  #hub: RawClient | undefined;

  constructor(
    home: string,
    { files = {}, cwd = ".", env = {} }: Scene,
    http: string,
    port: number,
  ) {
    this.#home = home;
    this.#http = http;
    this.#port = String(port);
    this.#cwd = join(home, cwd);
    this.#env = {
      PATH: `${join(home, "bin")}:/usr/bin:/bin`,
      HOME: home,
      TMPDIR: join(home, "tmp"),
      TERM: "dumb",
      SHELL: "/bin/sh",
      NO_COLOR: "1",
      MEMORY_FILE_PATH: join(home, "memory.json"),
      XDG_RUNTIME_DIR: join(home, "runtime"),
      TOOLMUX_RUN_DIR: join(home, "run"),
      TOOLMUX_KEYCHAIN: "off",
      ...env,
    };
    mkdirSync(this.#cwd, { recursive: true });
    mkdirSync(join(home, "bin"));
    symlinkSync(executable(), join(home, "bin", "toolmux"));
    writeFileSync(join(home, "bin", "npx"), NPX, { mode: 0o755 });
    for (const folder of [home, this.#cwd]) writeFileSync(join(folder, "server.mjs"), SMALL_SERVER);
    for (const [path, text] of Object.entries(files)) {
      const file = join(home, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text.replaceAll("HTTP/", `${http}/`), { mode: 0o600 });
    }
  }

  /** Starts a hub; over stdio, a client named cursor has listed its tools. */
  async startHub(args: string): Promise<void> {
    const words = this.#withPort(args).split(" ");
    const hub = new RawClient(executable(), words, this.#cwd, this.#env);
    this.#hub = hub;
    if (args.includes("--http"))
      await hub.until(20_000, "the address", () => hub.stderr.includes("serving") || undefined);
    else {
      await hub.request("initialize", {
        protocolVersion: "2025-11-25",
        capabilities: {},
        clientInfo: { name: "cursor", version: "1" },
      });
      hub.send({ jsonrpc: "2.0", method: "notifications/initialized" });
      await hub.request("tools/list");
      await waitUntilFound({ env: this.#env }, hub.pid);
    }
  }

  /** Makes the client of the hub call something, and does not wait for the answer. */
  call({ call }: Showing): void {
    if (call !== undefined) this.#hub?.sendCall(call.name, call.arguments);
  }

  async stopHub({ hub }: Scene): Promise<void> {
    if (this.#hub === undefined) return;
    if (hub?.includes("--http") !== true) return closeClient(this.#hub);
    this.#hub.signal("SIGTERM");
    await this.#hub.waitForExit(EXIT_LIMIT);
  }

  /** Returns the output of a command line, as the pages show it. The output of one that was run already is kept. */
  async run(line: string, showing: Showing): Promise<string> {
    const { type = [], until, isTerminal = type.length > 0, call } = showing;
    const isKept = showing.run !== undefined && showing.before === undefined;
    const kept = this.#outputs.get(line);
    if (isKept && kept !== undefined) return kept;
    const text = this.#withPort(line);
    const command = isTerminal
      ? startInTerminal({ dir: this.#cwd, env: this.#env }, `stty cols ${COLUMNS}; ${text}`)
      : new RawClient(
          "sh",
          ["-c", `exec 2>&1; ${until ? "exec " : ""}${text}`],
          this.#cwd,
          this.#env,
        );
    if (call !== undefined && until !== undefined) {
      await command.until(20_000, "a line", () => command.lines.length > 0 || undefined);
      this.call(showing);
    }
    for (const [prompt, typed] of type) {
      await command.until(20_000, `${prompt} in ${shownBy(command)}`, () =>
        command.unterminatedOutput.trimEnd().endsWith(prompt) ? true : undefined,
      );
      command.write(`${typed}\n`);
    }
    if (until !== undefined) {
      await command.until(20_000, `${until} in ${shownBy(command)}`, () =>
        until.test(shownBy(command)) ? true : undefined,
      );
      if (isTerminal) command.write("\u0003");
      else command.signal("SIGTERM");
    } else if (!isTerminal) command.end();
    await command.waitForExit(EXIT_LIMIT);
    const output = shownBy(command)
      .replaceAll(join(this.#home, "bin", "toolmux"), "/path/to/toolmux")
      .replaceAll("~/bin/toolmux", "/path/to/toolmux")
      .replaceAll(join(this.#home, "run"), "/run/user/1000/toolmux")
      .replaceAll(this.#home, "~")
      .replaceAll(`:${this.#port}`, ":8700")
      .replaceAll(`Port ${this.#port}`, "Port 8700")
      .replaceAll(String(Number(this.#port) + 1), "8701")
      .replaceAll(`${this.#http}/private`, "https://mcp.example.com/mcp")
      .replaceAll(`${this.#http}/wrong`, "https://mcp.example.com/wrong")
      .replaceAll(/^\^C/gm, "")
      .replaceAll("\r", "");
    this.#outputs.set(line, output);
    return output;
  }

  #withPort(line: string): string {
    return line.replaceAll("8700", this.#port);
  }
}

const SERVER = join(ROOT, "test", "fixtures", "servers", "scripted.mjs");

/** The scripted server, by default with two tools. */
const SMALL_SERVER = `if (process.argv.length === 2)
  process.argv.push("--bare", "--tool", "echo", "--tool", "wait");
await import(${JSON.stringify(SERVER)});
`;

/** `npx` without a registry: it has the packages of the repository. */
const NPX = `#!/bin/sh
[ "$1" = -y ] && shift
package=$1
shift
main=${ROOT}node_modules/$package/dist/index.js
if [ ! -e "$main" ]; then
  echo "npm error code E404" >&2
  echo "npm error 404 '$package@*' is not in this registry." >&2
  exit 1
fi
exec ${process.execPath} "$main" "$@"
`;

/** Whether the machine of a reader would print it: most have a keychain. */
function isShown(line: string, { title }: Snippet): boolean {
  return !line.includes("no usable keychain") || title.includes("no usable keychain");
}

/** Plays a scene. @returns what the pages show and the program does not print */
async function play(scene: Scene, snippets: readonly Snippet[], http: string): Promise<string[]> {
  return withTestFolder(
    "",
    async ({ dir }) => {
      const stage = new Stage(dir, scene, http, await findPort());
      for (const line of scene.before ?? []) await stage.run(line, {});
      if (scene.hub !== undefined) await stage.startHub(scene.hub);
      const wrong: string[] = [];
      for (const [title, showing] of Object.entries(scene.blocks)) {
        const snippet = snippets.find((each) => each.title === title);
        assert.ok(snippet, `${scene.page} has no block that begins with "${title}"`);
        if (showing.until === undefined) stage.call(showing);
        for (const line of showing.before ?? []) await stage.run(line, {});
        for (const { command, output } of snippet.steps) {
          const line = (showing.replace ?? []).reduce(
            (text, [from, to]) => text.replace(from, to),
            command ?? showing.run ?? "",
          );
          const printed = await stage.run(line, showing);
          const printedLines = printed.split("\n").filter((each) => isShown(each, snippet));
          const difference = firstDifference(output, printedLines, command !== undefined);
          if (difference === undefined) continue;
          wrong.push(
            `${scene.page}:${snippet.line}: $ ${line}\nshown, not printed: ${difference}\nprinted:\n${printed}`,
          );
        }
      }
      await stage.stopHub(scene);
      return wrong;
    },
    "unused.toml",
  );
}

/** Answers /private with 401 and everything else with 404. */
async function openHttpServer(): Promise<{ readonly url: string; close(): void }> {
  const server = createServer((request, response) => {
    const isPrivate = request.url === "/private";
    response.writeHead(isPrivate ? 401 : 404, isPrivate ? { "WWW-Authenticate": "Bearer" } : {});
    response.end(isPrivate ? "" : "Not Found");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => void server.close(),
  };
}

describe("the console blocks of the documentation", () => {
  const snippets = readSnippets();
  const isPlayed = ({ page, title }: Snippet): boolean =>
    SCENES.some((scene) => scene.page === page && Object.hasOwn(scene.blocks, title));

  it("are all run, or say why not", () => {
    for (const { page, line, exempt } of snippets)
      if (exempt !== undefined) process.stdout.write(`not run: ${page}:${line}: ${exempt}\n`);
    const silent = snippets.filter((each) => each.exempt === undefined && !isPlayed(each));
    assert.deepEqual(
      silent.map(({ page, line, title }) => `${page}:${line} ${title}`),
      [],
    );
    const both = snippets.filter((each) => each.exempt !== undefined && isPlayed(each));
    assert.deepEqual(both, []);
  });

  it("are found to be wrong where they show another word, too much or too little", () => {
    const printed = ["files  connected  14  12 ms  pid 4711", "", "1 connected"];
    const rows: readonly (readonly [readonly string[], boolean, boolean])[] = [
      [["files connected 15 3.1 s pid 31014", "1 connected"], true, true],
      [["…", "1 connected"], true, true],
      [["files …", "…"], true, true],
      [["1 connected"], false, true],
      [["1 connected"], true, false],
      [["files connected 15 3.1 s pid 31014"], true, false],
      [["files failed 15 3.1 s pid 31014", "1 connected"], true, false],
      [["files connected 15 3.1 s pid 31014", "2 connected"], true, false],
      [["…", "1 failed"], false, false],
    ];
    for (const [shown, isWhole, isRight] of rows)
      assert.equal(
        firstDifference(shown, printed, isWhole) === undefined,
        isRight,
        shown.join("; "),
      );
  });

  it("may show a figure as within noise that is not, and the other way round", () => {
    const marked = "1  * +2.82 ms  * 70%";
    const plain = "1  −8.11 ms  41%";
    for (const [shown, printed] of [
      [marked, plain],
      [plain, marked],
    ] as const)
      assert.equal(firstDifference([shown], [printed], true), undefined);
    assert.notEqual(firstDifference([marked], ["2  * +2.82 ms  * 70%"], true), undefined);
  });

  it("have an example of a manifest that loads", async () => {
    const page = readFileSync(join(ROOT, "docs", "manifest.md"), "utf8");
    const example = /\n## An example with all keys[^]*?```toml\n([^]*?)```/.exec(page)?.[1] ?? "";
    await withTestFolder(example, async (folder) => {
      const { problems } = await runJson<{ readonly problems: unknown }>(folder, "check");
      assert.deepEqual(problems, []);
    });
  });

  for (const [at, scene] of SCENES.entries()) {
    const titles = Object.keys(scene.blocks);
    it(`show what is printed in ${scene.page} (${at + 1}: ${titles.length} blocks)`, async () => {
      const http = await openHttpServer();
      try {
        const wrong = await play(
          scene,
          snippets.filter(({ page }) => page === scene.page),
          http.url,
        );
        if (wrong.length > 0) assert.fail(wrong.join("\n\n"));
      } finally {
        http.close();
      }
    });
  }
});
