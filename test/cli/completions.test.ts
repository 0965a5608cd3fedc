import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { promisify } from "node:util";
import { COMMANDS } from "../../src/cli/commands.ts";
import { COMPLETION_SCRIPTS } from "../../src/cli/commands/completions.ts";
import { completeLine } from "../../src/cli/complete.ts";
import { type CommandContext, SHELLS } from "../../src/cli/command.ts";
import { GLOBAL_OPTIONS } from "../../src/cli/args.ts";
import { namedOptions } from "../../src/cli/options.ts";
import { Terminal } from "../../src/terminal/terminal.ts";
import { executable } from "../harness/hub.ts";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";

type Shell = (typeof SHELLS)[number];

/** What completion needs for words that depend on nothing but the table of commands. */
const CONTEXT: CommandContext = {
  env: {},
  cwd: tmpdir(),
  platform: "linux",
  signal: new AbortController().signal,
  uncaughtErrorHandlers: new Set(),
  hangupHandlers: new Set(),
  terminal: new Terminal({}),
};

const COMMAND_NAMES = COMMANDS.map(({ name }) => name).toSorted();
const FILES = ["a folder", "folder", "memory.json", "one.toml", "two words.json"];
const FOLDERS = ["a folder", "folder"];
const LEVELS = ["debug", "error", "info", "warn"];

/** What is typed, the cursor at its end, and what is offered for the last word. */
const OFFERED: readonly (readonly [typed: string, offered: readonly string[]])[] = [
  ["toolmux ", COMMAND_NAMES],
  ["toolmux c", ["call", "calls", "cancel", "chat", "check", "clients", "completions"]],
  ["toolmux status ", ["files", "web"]],
  ["toolmux status files w", ["web"]],
  ["toolmux --config memory.json status ", ["memory"]],
  ["toolmux auth login ", ["web"]],
  ["toolmux call f", ["files__move", "files__read"]],
  ["toolmux call files__read ", ["head=", "path="]],
  ["toolmux call files__read path=x ", ["head="]],
  ["toolmux describe files__m", ["files__move"]],
  ["toolmux get ", ["files__review"]],
  ["toolmux get files__review ", ["file="]],
  ["toolmux list ", ["files", "prompts", "resources", "servers", "skills", "tools", "web"]],
  ["toolmux list t", ["tools"]],
  ["toolmux list tools ", ["files", "web"]],
  ["toolmux list --json p", ["prompts"]],
  ["toolmux completions ", ["bash", "fish", "zsh"]],
  ["toolmux help ch", ["chat", "check"]],
  ["toolmux --log-level ", LEVELS],
  ["toolmux list --log-level w", ["warn"]],
  ["toolmux --config ", FILES],
  ["toolmux --config one.toml li", ["limits", "list"]],
  ["toolmux --config one.toml --log-level info list s", ["servers", "skills"]],
  ["toolmux trust o", ["one.toml"]],
  ["toolmux call x --output ", FOLDERS],
  ["toolmux call x -o fo", ["folder"]],
  ["toolmux call --str", ["--structured"]],
  ["toolmux call --json ", []],
  ["toolmux call ", ["files__move", "files__read"]],
  ["toolmux check --j", ["--json"]],
  ["toolmux --conf", ["--config"]],
];

/** A server with two tools and a prompt, as text of a program. */
const SERVER = `
const lists = {
  tools: [
    { name: "read", inputSchema: { type: "object", properties: { path: {}, head: {} } } },
    { name: "move", inputSchema: { type: "object" } },
  ],
  prompts: [{ name: "review", arguments: [{ name: "file" }] }],
};
const initialize = (params) => ({
  protocolVersion: params.protocolVersion,
  capabilities: { tools: {}, prompts: {} },
  serverInfo: { name: "files", version: "1" },
});
let text = "";
process.stdin.on("data", (chunk) => {
  text += chunk;
  const lines = text.split("\\n");
  text = lines.pop();
  for (const { id, method, params } of lines.map((line) => JSON.parse(line))) {
    if (id === undefined) continue;
    const kind = method.replace("/list", "");
    const result = method === "initialize" ? initialize(params) : { [kind]: lists[kind] ?? [] };
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\\n");
  }
});
`;

/** Writes a manifest and lists its servers once. @returns the folder to put into PATH */
async function prepareHome(root: string, cwd: string): Promise<string> {
  const bin = join(root, "bin");
  const config = join(root, ".config", "toolmux");
  for (const folder of [bin, config]) await mkdir(folder, { recursive: true });
  await symlink(executable(), join(bin, "toolmux"));
  await writeFile(join(root, "server.mjs"), SERVER);
  const files = { command: "node", args: [join(root, "server.mjs")] };
  const web = { url: "http://127.0.0.1:1/mcp" };
  const manifest = { servers: { files, web } };
  await writeFile(join(config, "toolmux.json"), JSON.stringify(manifest));
  await writeFile(join(cwd, "memory.json"), '{ "servers": { "memory": { "command": "memory" } } }');
  const { PATH = "" } = process.env;
  await run(join(bin, "toolmux"), ["list", "files"], { cwd, env: { PATH, HOME: root } });
  return bin;
}

/** Before what is offered for the next line. */
const NEXT = "\u0001";

/**
 * A program for each shell that asks its own completion for every line ($2 …) after it has read the script ($1),
 * and prints one offer in each line.
 */
const ASK: Readonly<Record<Shell, readonly string[]>> = {
  bash: [
    "--norc",
    "-c",
    `source "$1"
     for typed in "\${@:2}"; do
       # What readline does: = is a word of its own.
       read -ra COMP_WORDS <<<"\${typed//=/ = }"
       [[ $typed == *' ' ]] && COMP_WORDS+=("")
       COMP_CWORD=$((\${#COMP_WORDS[@]} - 1))
       _toolmux
       printf '%s\\n' "${NEXT}" "\${COMPREPLY[@]}"
     done`,
    "bash",
  ],
  // A shell of its own in a terminal of its own, whose compadd notes what it is given in a file.
  zsh: [
    "-f",
    "-c",
    `zmodload zsh/zpty
     zpty shell zsh -f -i
     zpty -w shell "source \${(q)1}.setup; source \${(q)1}"
     for typed in "\${@:2}"; do
       : > $1.offers
       zpty -w -n shell "$typed"$'\\t'
       zpty -r shell line '*offers noted*'
       zpty -w -n shell $'\\x15'
       print "${NEXT}"
       cat $1.offers
     done
     zpty -d shell`,
    "zsh",
  ],
  fish: [
    "--no-config",
    "-c",
    `source $argv[1]
     for typed in $argv[2..]
       echo "${NEXT}"
       complete -C $typed | string replace -r '\\t.*' ''
     end
     true`,
  ],
};

/** For zsh, read before the script: completion as a user has it, and notes of it. */
const ZSH_SETUP = (script: string) => `
PS1= PS2=
stty -echo
autoload -Uz compinit && compinit -u -D
zstyle ':completion:*' list-rows-first yes
compadd() {
  if [[ "$*" == *(-A|-O|-D)* ]]; then builtin compadd "$@"; return; fi
  local -a offers
  builtin compadd -A offers "$@"
  (( \${#offers} )) && print -rl -- $offers >> ${script}.offers
  builtin compadd "$@"
}
finished() { zle complete-word; : >> ${script}.offers; print 'offers noted' }
zle -C complete-word .complete-word _main_complete
zle -N finished
bindkey '^I' finished
`;

const run = promisify(execFile);

/** What a shell offers for each line. */
async function askShell(
  shell: Shell,
  lines: readonly string[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const root = await mkdtemp(join(tmpdir(), "toolmux-completions-"));
  const cwd = join(root, "here");
  try {
    for (const folder of FOLDERS) await mkdir(join(cwd, folder), { recursive: true });
    for (const file of FILES.filter((one) => one.includes(".")))
      await writeFile(join(cwd, file), "");
    const script = join(root, "script");
    await writeFile(script, COMPLETION_SCRIPTS[shell]);
    await writeFile(`${script}.setup`, ZSH_SETUP(script));
    const PATH = `${await prepareHome(root, cwd)}:${process.env["PATH"] ?? ""}`;
    const options = { cwd, env: { PATH, HOME: root, TERM: "xterm" }, timeout: 20_000 };
    const args = [...ASK[shell], script, ...lines];
    const { stdout, stderr } = await run(shell, args, options);
    assert.equal(stderr, "");
    const [before, ...answers] = stdout.split(`${NEXT}\n`);
    assert.deepEqual([before, answers.length], ["", lines.length]);
    return new Map(answers.map((answer, i) => [lines[i] ?? "", readOffers(answer)]));
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

/** Without the slash behind a folder and the backslash before a space. */
function readOffers(answer: string): readonly string[] {
  const offers = answer.split("\n").map((line) => line.trim().replace(/\/$/, ""));
  const plain = offers.map((line) => line.replace(/\\(.)/g, "$1"));
  return [...new Set(plain.filter((line) => line !== ""))].toSorted();
}

/** Where = is a word of its own, a value may still be completed. */
const BASH_ONLY: typeof OFFERED = [
  ["toolmux --config=o", ["one.toml"]],
  ["toolmux list --config=o", ["one.toml"]],
];

describe("the completions", () => {
  for (const shell of SHELLS) {
    const skip = skipWithout({
      isMet: missingPrograms([shell]).length === 0,
      tests: `the completions of ${shell}`,
      remedy: `there is no ${shell} (apt-get install ${shell})`,
    });
    const expected = shell === "bash" ? [...OFFERED, ...BASH_ONLY] : OFFERED;
    let asked: ReturnType<typeof askShell> | undefined;
    const lines = expected.map(([line]) => line);
    for (const [typed, offered] of expected) {
      const what = `of ${shell} offer for "${typed}" ${offered.join(", ") || "nothing"}`;
      it(what, { skip, timeout: 30_000 }, async () => {
        const offers = (await (asked ??= askShell(shell, lines))).get(typed) ?? [];
        // Where there is nothing else, zsh offers the options.
        const isWanted = (word: string) => offered.length > 0 || !word.startsWith("-");
        assert.deepEqual(offers.filter(isWanted), offered);
      });
    }
  }

  it("offer every option of every command, with its summary", async () => {
    for (const { name, options } of COMMANDS) {
      const completion = await completeLine([name, "-"], COMMANDS, CONTEXT);
      assert.ok(completion.kind === "words");
      const offered = new Map(completion.words.map(({ word, summary }) => [word, summary]));
      for (const option of namedOptions(options, GLOBAL_OPTIONS))
        assert.equal(offered.get(`--${option.name}`), option.summary);
    }
  });

  it("offer nothing behind an unknown command, behind the last argument, and for options behind --", async () => {
    for (const line of ["nonsense ", "schema ", "trust one.toml ", "add name -- npx --"]) {
      const completion = await completeLine(line.split(" "), COMMANDS, CONTEXT);
      assert.deepEqual(completion, { kind: "words", words: [] }, line);
    }
  });

  const hostile = "file:///$(touch evil);`touch evil`";
  const quoted = skipWithout({
    isMet: missingPrograms(["bash"]).length === 0,
    tests: "the quoting of completions",
    remedy: "there is no bash (apt-get install bash)",
  });
  it("of bash quote what servers list, so that it is not run", { skip: quoted }, async () => {
    const script = `
      ${COMPLETION_SCRIPTS.bash}
      toolmux() { printf 'words\n%s\n' '${hostile}'; }
      COMP_WORDS=(toolmux read "") COMP_CWORD=2
      _toolmux
      eval "printf '%s' \${COMPREPLY[0]}"`;
    const cwd = await mkdtemp(join(tmpdir(), "toolmux-completions-"));
    try {
      const { stdout } = await run("bash", ["--norc", "-c", script], { cwd, timeout: 20_000 });
      assert.equal(stdout, hostile);
      assert.deepEqual(await readdir(cwd), []);
    } finally {
      await rm(cwd, { recursive: true, force: true });
    }
  });
});
