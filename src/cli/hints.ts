import { formatDuration, formatSize } from "../base/format.ts";
import { basename, resolve } from "node:path";
import type { HubError } from "../base/errors.ts";
import { type Env, expandHome } from "../base/paths.ts";
import { suggestArgs } from "../manifest/command-line.ts";
import { listSchemes, templatePartsOf } from "../manifest/interpolate.ts";
import type { PackageLaunch } from "../manifest/package.ts";
import { missingSecretsOf } from "../manifest/resolve.ts";
import type {
  ExternalServer,
  RemoteServer,
  RunnableServer,
  ServerSpec,
  StdioServer,
} from "../manifest/manifest.ts";
import { describeCommand } from "./server-description.ts";

/**
 * What the user can do about an HTTP server that failed: full sentences, the likeliest cure first; empty if
 * there is no hint.
 */
export function remoteHintsFor(error: HubError, spec: RemoteServer): readonly string[] {
  const { name, transport } = spec;
  switch (error.code) {
    case "unreachable":
      return [
        "Make sure that the server runs and that its url is right (host and port).",
        "If this machine reaches the network through a proxy, set HTTPS_PROXY where toolmux is started (NO_PROXY: hosts that are reached without).",
      ];
    case "tlsFailed":
      return [
        "If its certificate is of an authority of your own, name that one's file in the manifest (ca), or in NODE_EXTRA_CA_CERTS.",
        "If the certificate has expired, or is for another host, only those who run the server can put that right.",
      ];
    case "serverRefused":
      if (error.step === "authorize") {
        return [
          "Compare oauth.clientId, and oauth.clientSecret or oauth.privateKey, with what its authorization server has of them.",
        ];
      }
      return [
        "Compare its url with the server's documentation: it ends in a path, often /mcp or /sse.",
        transport === "auto"
          ? "If it says that something is missing from the request, set that in headers."
          : `It is spoken to with transport = "${transport}" only: leave that out, and it is found out.`,
      ];
    case "serverFailed":
    case "answerLost":
    case "notDelivered":
    case "connectionLost":
      return [
        "The server, or something in front of it, is in trouble: its own log says more. It is tried again by itself.",
      ];
    case "unauthorized":
      return authorizationHintsFor(spec);
    case "handshakeFailed":
      return error.step === "list"
        ? ["Its list is malformed or cannot be had: look for a newer version of the server."]
        : [
            "It may be something else than an MCP server, or one of a revision that toolmux does not speak: compare its url with its documentation.",
          ];
    case "connectTimeout":
      return [
        raiseLimitHint(spec),
        `It may be behind a firewall that answers nothing, or at another port: toolmux check shows its url.`,
      ];
    case "notReading":
    case "notResponding":
      return [
        `It is connected but does not answer: start it anew, or have ${name} looked at by whoever runs it.`,
      ];
    case "messageTooLarge":
      return [`Raise maxMessage for it in the manifest (now ${formatSize(spec.maxMessage)}).`];
    case "internal":
      return ["This is a mistake in toolmux. More of it: toolmux status --log-level debug"];
    default:
      return [];
  }
}

function authorizationHintsFor({ name, auth, headers, keyFile }: RemoteServer): readonly string[] {
  const own = Object.keys(headers).find((key) => key.toLowerCase() === "authorization");
  if (own !== undefined) {
    return [
      `It does not accept what the manifest says in headers.${own}: put in one that is good.`,
    ];
  }
  const byKey =
    keyFile === undefined ? [] : ["If its key is good no longer, put another into the keyFile."];
  return auth === "none"
    ? [...byKey, `Authorization is switched off for it: take out auth = "none", or set headers.`]
    : [...byKey, `Authorize it: toolmux auth login ${name}`];
}

/** The hint to raise the limit of a server that needs more time to start. */
export function raiseLimitHint({ connectTimeout, startLimit }: RunnableServer): string {
  return startLimit === undefined
    ? `Give it more time: raise connectTimeout for it in the manifest (now ${formatDuration(connectTimeout)}).`
    : `Give it more time: set connectTimeout for it in the manifest (without it a start is ended after ${formatDuration(startLimit)}).`;
}

/** Products that provide the commands which servers are often started with. */
const PRODUCT_OF_COMMAND: Readonly<Record<string, string>> = {
  node: "Node.js",
  npm: "Node.js",
  npx: "Node.js",
  pnpm: "pnpm",
  yarn: "Yarn",
  bun: "Bun",
  bunx: "Bun",
  deno: "Deno",
  python: "Python",
  python3: "Python",
  pipx: "pipx",
  uv: "uv",
  uvx: "uv",
  docker: "Docker",
  podman: "Podman",
};

/** Commands that download a package before they run it. */
const DOWNLOADERS = new Set("npx npm pnpm yarn bunx deno uv uvx pipx docker podman nix".split(" "));

/**
 * What the user can do about an unavailable server: full sentences, the likeliest cure first; empty if there
 * is no hint. Contains no secret.
 * @param env the hub's own environment
 */
export function hintsFor(error: HubError, spec: ServerSpec, env: Env): readonly string[] {
  if (spec.kind === "unsupported") {
    return ['Remove its entry, or switch it off there with "disabled": true.'];
  }
  if (spec.kind === "invalid") {
    return ["Correct its table in the manifest: toolmux check shows the lines."];
  }
  if (spec.kind === "plugin") {
    return [`It is part of the plugin "${spec.plugin}": its log may say more (--log-level debug).`];
  }
  if (error.code === "valueMissing") return missingValueHints(error, spec, env);
  if (spec.kind === "remote") return remoteHintsFor(error, spec);
  switch (error.code) {
    case "notSupported":
      return [
        `What can stand in a manifest is ${supportedPlaceholders(spec).join(", ")}.`,
        ...missingPluginHints(spec),
      ];
    case "commandNotFound":
      return missingCommandHints(spec);
    case "notExecutable":
      return notExecutableHints(spec, env);
    case "spawnFailed":
      return [
        ...(spec.cwd === undefined
          ? []
          : [
              `Make sure that its working directory is there (${absolutePathOf(spec.cwd, spec, env)}).`,
            ]),
        "If the system has no room for more processes, end some or raise its limits (ulimit -a).",
      ];
    case "connectTimeout":
      return timeoutHints(error, spec, env);
    case "handshakeFailed":
      return error.step === "list"
        ? ["Its list is malformed or cannot be had: look for a newer version of the server."]
        : [
            "It may be another program than an MCP server over stdio, or one of a revision that toolmux does not speak: compare the command with its documentation, or look for a newer version.",
            manualTestHint(spec, env),
          ];
    case "connectionLost":
      return [
        manualTestHint(spec, env),
        "If it runs there and not here, it may want a variable: of your environment it gets only a few; name others in inheritEnv.",
      ];
    case "notReading":
    case "notResponding":
      return ["It runs but is stuck: look at what it waits for.", manualTestHint(spec, env)];
    case "messageTooLarge":
      return [`Raise maxMessage for it in the manifest (now ${formatSize(spec.maxMessage)}).`];
    case "internal":
      return ["This is a mistake in toolmux. More of it: toolmux status --log-level debug"];
    default:
      return [];
  }
}

function missingValueHints(error: HubError, spec: ExternalServer, env: Env): string[] {
  const parts = templatePartsOf(spec);
  const names = new Set(
    parts.flatMap((part) =>
      part.kind === "env" && part.fallback === undefined && env[part.name] === undefined
        ? [part.name]
        : [],
    ),
  );
  const variables = [...names].map((name) => {
    const fallback = spec.syntax === "client" ? `\${${name}:-…}` : `\${env:${name}:-…}`;
    return `Set ${name} where toolmux is started: export ${name}=… in your shell, or "env" in the entry of the client that starts toolmux. Or give it a default in the manifest: ${fallback}`;
  });
  const files = parts.flatMap((part) =>
    part.kind === "file" ? [absolutePathOf(part.path, spec, env)] : [],
  );
  const list = [...new Set(files)].join(", ");
  const secrets = missingSecretsOf(error).map(
    (name) => `Give it the secret ${name}: toolmux secret set ${name}`,
  );
  return [
    ...secrets,
    ...variables,
    ...(list === "" ? [] : [`Make sure that you can read: ${list}`]),
    ...listSchemes(spec).map((scheme) => `Make sure that the plugin for \${${scheme}:…} has it.`),
  ];
}

function missingCommandHints({ command, baseDir, package: packaged }: StdioServer): string[] {
  if (packaged !== undefined) return missingRunnerHints(packaged, command);
  // The message itself says what to write.
  if (!command.includes("/") && suggestArgs(command) !== undefined) return [];
  if (command.includes("/")) {
    return [
      command.startsWith("/") || command.startsWith("~") || command.startsWith("$")
        ? "Correct the path (command)."
        : `Correct the path (command); it is looked for from ${baseDir}.`,
    ];
  }
  const origin = Object.hasOwn(PRODUCT_OF_COMMAND, command)
    ? PRODUCT_OF_COMMAND[command]
    : undefined;
  const source = origin === undefined || origin === command ? "" : ` (it comes with ${origin})`;
  return [
    `Install ${command}${source}, or check how it is spelled.`,
    `If your terminal finds it (command -v ${quoteForShell(command)}), write the path that it prints as command: a client may start toolmux with another PATH than your shell's.`,
  ];
}

/** Hints if none of the package's runners is installed. */
function missingRunnerHints(
  { name, alternatives: others }: PackageLaunch,
  command: string,
): string[] {
  const runners = [command, ...others.map((it) => it.command)].map((runner) =>
    PRODUCT_OF_COMMAND[runner] === undefined || PRODUCT_OF_COMMAND[runner].toLowerCase() === runner
      ? (PRODUCT_OF_COMMAND[runner] ?? runner)
      : `${PRODUCT_OF_COMMAND[runner]} (${runner})`,
  );
  const list = new Intl.ListFormat("en", { type: "disjunction" }).format(runners);
  return [
    `Install ${list}: ${runners.length > 1 ? "any of them" : "it"} can run ${name}.`,
    `If your terminal finds one (command -v ${command}), a client may start toolmux with another PATH than your shell's.`,
  ];
}

function notExecutableHints(spec: StdioServer, env: Env): string[] {
  const { command } = spec;
  const file = command.includes("/")
    ? quoteForShell(absolutePathOf(command, spec, env))
    : `"$(command -v ${quoteForShell(command)})"`;
  return [
    `You must be allowed to run it: chmod +x ${file}`,
    "If it is a script, the program that its first line names must be there, too; if it is none, it must be built for this system.",
  ];
}

function timeoutHints({ step }: HubError, spec: StdioServer, env: Env): string[] {
  const raiseHint = raiseLimitHint(spec);
  const program = basename(spec.command);
  switch (step) {
    case "resolve":
      return [
        listSchemes(spec).length === 0
          ? "Look at the files that its ${file:…} name: one of them does not end."
          : "Look at the files and plugins that its ${…} name: one of them does not end.",
        raiseHint,
      ];
    case "list":
      return [raiseHint, "If that does not help, it is stuck at its list of tools."];
    default:
      return DOWNLOADERS.has(program)
        ? [
            `${program} may still be downloading: have that done once before. ${manualTestHint(spec, env)}`,
            raiseHint,
          ]
        : [
            raiseHint,
            `It may be no MCP server over stdio, or wait for something else. ${manualTestHint(spec, env)}`,
          ];
  }
}

/**
 * A hint to run the server's command by hand. Masked values and `${…}` stay in the command line, for the user to
 * replace.
 */
function manualTestHint(spec: StdioServer, env: Env): string {
  const folder =
    spec.cwd === undefined ? "" : `cd ${quoteForShell(absolutePathOf(spec.cwd, spec, env))} && `;
  const line = folder + describeCommand(spec);
  const advice = /[…•]|\$\{/.test(line)
    ? "Try it by hand, with its values put in"
    : "Try it by hand";
  return `${advice}: ${line}`;
}

function missingPluginHints(spec: StdioServer): string[] {
  return listSchemes(spec).map(
    (scheme) => `\${${scheme}:…} wants a plugin that has it ([[plugins]]).`,
  );
}

function supportedPlaceholders({ syntax }: StdioServer): readonly string[] {
  return syntax === "client"
    ? ["${NAME}", "${NAME:-default}", "${env:NAME}", "${file:PATH}", "${workspaceFolder}"]
    : ["${env:NAME}", "${env:NAME:-default}", "${file:PATH}", "${secret:NAME}", "${cmd:COMMAND}"];
}

function absolutePathOf(path: string, { baseDir }: ExternalServer, env: Env): string {
  return path.includes("${") ? path : resolve(baseDir, expandHome(path, env));
}

function quoteForShell(word: string): string {
  return /^[\w./:@%+=,~-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
