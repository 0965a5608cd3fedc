import { basename } from "node:path";
import type { RunnableServer, StdioServer } from "./manifest.ts";
import { type PackageOrigin, parsePackage } from "./package.ts";

/* Servers that are known to keep a client's state in their process, so that clients must not share it. */

/** The program of a server that keeps a client's state. */
interface StatefulProgram {
  /** What it keeps, as the object of "keeps …". */
  readonly state: string;
  /** The packages that contain it, as manifests write them, without a version. */
  readonly packages: readonly `${PackageOrigin}:${string}`[];
  /** The names of its installed commands. */
  readonly commands?: readonly string[];
}

const BROWSER = "a browser with its pages";
const THOUGHTS = "the thoughts of one conversation";
const DEBUGGER = "a debugged program, with its breakpoints";
const TERMINAL = "terminal sessions";
const INTERPRETER = "the variables of an interpreter";

/** Only programs are here of which it is certain: others share their process, unless the manifest says otherwise. */
const STATEFUL_PROGRAMS: readonly StatefulProgram[] = [
  {
    state: BROWSER,
    packages: [
      "npm:@playwright/mcp",
      "docker:mcr.microsoft.com/playwright/mcp",
      "docker:mcp/playwright",
    ],
    commands: ["playwright-mcp", "mcp-server-playwright"],
  },
  {
    state: BROWSER,
    packages: ["npm:@executeautomation/playwright-mcp-server"],
  },
  { state: BROWSER, packages: ["npm:chrome-devtools-mcp"], commands: ["chrome-devtools-mcp"] },
  {
    state: BROWSER,
    packages: [
      "npm:@modelcontextprotocol/server-puppeteer",
      "npm:puppeteer-mcp-server",
      "docker:mcp/puppeteer",
    ],
    commands: ["mcp-server-puppeteer"],
  },
  { state: BROWSER, packages: ["npm:@angiejones/mcp-selenium", "pypi:mcp-selenium"] },
  { state: BROWSER, packages: ["pypi:mcp-server-browser-use", "pypi:browser-use"] },
  {
    state: THOUGHTS,
    packages: [
      "npm:@modelcontextprotocol/server-sequential-thinking",
      "npm:mcp-sequentialthinking-tools",
      "pypi:sequential-thinking",
      "docker:mcp/sequentialthinking",
    ],
    commands: ["mcp-server-sequential-thinking"],
  },
  { state: DEBUGGER, packages: ["npm:@debugmcp/mcp-debugger"] },
  { state: DEBUGGER, packages: ["pypi:mcp-pdb"], commands: ["mcp-pdb"] },
  { state: DEBUGGER, packages: ["pypi:gdb-mcp"] },
  { state: DEBUGGER, packages: ["pypi:lldb-mcp-server"] },
  {
    state: TERMINAL,
    packages: ["npm:@wonderwhy-er/desktop-commander", "docker:mcp/desktop-commander"],
    commands: ["desktop-commander"],
  },
  { state: TERMINAL, packages: ["pypi:pty-mcp"] },
  { state: INTERPRETER, packages: ["pypi:mcp-python-repl"] },
  { state: INTERPRETER, packages: ["pypi:posit-mcp-repl"] },
  { state: INTERPRETER, packages: ["pypi:ipython-mcp"] },
  { state: INTERPRETER, packages: ["pypi:jupyter-mcp-server"], commands: ["jupyter-mcp-server"] },
];

const STATE_BY_PACKAGE: ReadonlyMap<string, string> = new Map(
  STATEFUL_PROGRAMS.flatMap(({ state, packages }) => packages.map((name) => [name, state])),
);
const STATE_BY_COMMAND: ReadonlyMap<string, string> = new Map(
  STATEFUL_PROGRAMS.flatMap(({ state, commands = [] }) => commands.map((name) => [name, state])),
);

/** The programs that run packages, and where these come from. */
const RUNNER_ORIGINS: ReadonlyMap<string, PackageOrigin> = new Map([
  ...originOf("npm", "npx", "npm", "pnpx", "pnpm", "yarn", "bun", "bunx", "deno"),
  ...originOf("pypi", "uvx", "uv", "pipx"),
  ...originOf("docker", "docker", "podman", "nerdctl"),
]);

function originOf(
  origin: PackageOrigin,
  ...runners: readonly string[]
): readonly (readonly [string, PackageOrigin])[] {
  return runners.map((runner) => [runner, origin]);
}

/**
 * What a server is known to keep for a client, as the object of "keeps …"; undefined if nothing is known. It is known by
 * the package, the image or the command in its entry, not by its name.
 */
export function clientStateOf(spec: RunnableServer): string | undefined {
  if (spec.kind !== "stdio") return undefined;
  for (const name of packagesOf(spec)) {
    const state = STATE_BY_PACKAGE.get(name);
    if (state !== undefined) return state;
  }
  for (const word of wordsOf(spec)) {
    const state = STATE_BY_COMMAND.get(programNameOf(word));
    if (state !== undefined) return state;
  }
  return undefined;
}

/** The texts that may name the server's package, without versions. */
function packagesOf(spec: StdioServer): readonly string[] {
  const written = spec.package === undefined ? undefined : parsePackage(spec.package.name);
  if (written !== undefined) return [`${written.origin}:${nameIn(written.origin, written.name)}`];
  const words = [spec.command, ...spec.args].flatMap((text) => text.split(/\s+/));
  const runner = words.findIndex((word) => RUNNER_ORIGINS.has(programNameOf(word)));
  const origin = RUNNER_ORIGINS.get(programNameOf(words[runner] ?? ""));
  const named =
    origin === undefined
      ? []
      : words.slice(runner + 1).map((word) => `${origin}:${nameIn(origin, word)}`);
  const installed = words.flatMap((word) => {
    const [, name] = /[\\/]node_modules[\\/]((?:@[^\\/]+[\\/])?[^\\/]+)[\\/]/.exec(word) ?? [];
    return name === undefined ? [] : [`npm:${name.replace("\\", "/")}`];
  });
  const module = words[words.indexOf("-m") + 1] ?? "";
  const isPython = /^python[\d.]*$/.test(programNameOf(spec.command));
  return [...named, ...installed, ...(isPython ? [`pypi:${module.replaceAll("_", "-")}`] : [])];
}

/** The name of a package in a word of a command line, such as `--from=NAME==1.2`, `npm:NAME@1.2` or `NAME:tag`. */
function nameIn(origin: PackageOrigin, word: string): string {
  const value = word.replace(/^--?[\w-]+=/, "").replace(/^(?:npm|pypi|docker|jsr):/, "");
  switch (origin) {
    case "npm":
      return value.replace(/(?<=.)@.*$/, "");
    case "pypi":
      return value
        .replace(/(?:\[.*|[=<>~!@].*)$/, "")
        .toLowerCase()
        .replaceAll("_", "-");
    case "docker":
      return value
        .replace(/@sha256:.*$/, "")
        .replace(/:[\w.-]+$/, "")
        .replace(/^(?:docker\.io|index\.docker\.io)\//, "");
  }
}

/** The command, and the script that an interpreter runs. */
function wordsOf({ command, args }: StdioServer): readonly string[] {
  const script = args.find((arg) => !arg.startsWith("-"));
  return script === undefined || !/^(?:node|bun|deno|python[\d.]*)$/.test(programNameOf(command))
    ? [command]
    : [command, script];
}

function programNameOf(word: string): string {
  return basename(word).replace(/\.(?:exe|cmd|bat|[cm]?js|py)$/, "");
}
