import { formatDuration, formatSize } from "../base/format.ts";
import { basename, delimiter, resolve } from "node:path";
import process from "node:process";
import type { HubError } from "../base/errors.ts";
import { type Env, expandHome } from "../base/paths.ts";
import { suggestArgs } from "../manifest/syntax/command-line.ts";
import { listSchemes, templatePartsOf } from "../manifest/interpolate.ts";
import type { PackageLaunch } from "../manifest/package.ts";
import { findNearest } from "../manifest/problems.ts";
import { missingSecretsOf } from "../manifest/resolve.ts";
import type {
  ExternalServer,
  RemoteServer,
  RunnableServer,
  ServerSpec,
  StdioServer,
} from "../manifest/manifest.ts";
import { type StderrCause, stderrCauseOf } from "../transport/stderr-error.ts";
import { describeCommand } from "./server-description.ts";

/**
 * Hints for the user about an HTTP server that failed: full sentences, the likeliest solution first. May be empty.
 */
function remoteHintsFor(error: HubError, spec: RemoteServer): readonly string[] {
  const { name, transport } = spec;
  switch (error.code) {
    case "unreachable":
      return [
        "Check that the server is running, and that host and port of its url are correct.",
        "If this network needs a proxy, set HTTPS_PROXY in the environment of toolmux (NO_PROXY lists the hosts that need none).",
      ];
    case "tlsFailed":
      return [
        "If a private authority signed its certificate, set ca in the manifest, or NODE_EXTRA_CA_CERTS, to the file of that authority.",
        "If the certificate has expired, or is for another host, the operator of the server must replace it.",
      ];
    case "serverRefused":
      if (error.step === "authorize") {
        return [
          "Check oauth.clientId, and oauth.clientSecret or oauth.privateKey: its authorization server does not accept them.",
        ];
      }
      return [
        "Compare its url with the documentation of the server: the path is often /mcp or /sse.",
        transport === "auto"
          ? "If the message says that the request lacks something, set it in headers."
          : `The manifest sets transport = "${transport}": remove that line, and toolmux detects the transport.`,
      ];
    case "serverFailed":
    case "answerLost":
    case "notDelivered":
    case "connectionLost":
      return [
        "The server, or a proxy in front of it, has a problem: look at its own log. toolmux tries again automatically.",
      ];
    case "unauthorized":
      return authorizationHintsFor(spec);
    case "handshakeFailed":
      return error.step === "list"
        ? ["The server sends an invalid list, or none: look for a newer version of it."]
        : [
            "It may not be an MCP server, or use an MCP version that toolmux does not support: compare its url with its documentation.",
          ];
    case "connectTimeout":
      return [
        raiseLimitHint(spec),
        "A firewall may block it, or the port may be wrong. To see its url: toolmux check",
      ];
    case "notReading":
    case "notResponding":
      return [`It is connected but does not answer: restart it, or ask the operator of ${name}.`];
    default:
      return generalHintsFor(error, spec);
  }
}

/** Hints about errors that servers have however they are reached. */
function generalHintsFor({ code }: HubError, { maxMessage }: ExternalServer): readonly string[] {
  if (code === "messageTooLarge")
    return [`Raise maxMessage for it in the manifest (now ${formatSize(maxMessage)}).`];
  return code === "internal"
    ? ["This is a bug in toolmux. Details: toolmux status --log-level debug"]
    : [];
}

function authorizationHintsFor({ name, auth, headers, keyFile }: RemoteServer): readonly string[] {
  const own = Object.keys(headers).find((key) => key.toLowerCase() === "authorization");
  if (own !== undefined) {
    return [`The server does not accept headers.${own}: correct its value in the config.`];
  }
  const byKey =
    keyFile === undefined ? [] : ["If its key is no longer valid, put a new one into keyFile."];
  return auth === "none"
    ? [...byKey, `Authorization is disabled for it: remove auth = "none", or set headers.`]
    : [...byKey, `Log in: toolmux auth login ${name}`];
}

/** The hint to give a server more time to start: it names the limit to raise. */
function raiseLimitHint({ connectTimeout, startLimit }: RunnableServer): string {
  return startLimit === undefined
    ? `Give it more time: raise connectTimeout for it in the manifest (now ${formatDuration(connectTimeout)}).`
    : `Give it more time: set connectTimeout for it in the manifest (by default a start ends after ${formatDuration(startLimit)}).`;
}

/** For each command that often starts a server, the product that provides the command. */
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
 * Hints for the user about an unavailable server: full sentences, the likeliest solution first. May be empty.
 * Contains no secret.
 * @param env the environment of the hub
 */
export function hintsFor(error: HubError, spec: ServerSpec, env: Env): readonly string[] {
  if (spec.kind === "unsupported") {
    return ['Remove it from the manifest, or disable it there: "disabled": true'];
  }
  if (spec.kind === "invalid") {
    return ["Correct it in the config. To see the lines: toolmux check"];
  }
  if (spec.kind === "plugin") {
    return [
      `It belongs to the plugin "${spec.plugin}". The log may have details: --log-level debug`,
    ];
  }
  if (spec.kind === "fleet") {
    return error.code === "notSupported"
      ? ["Write the table fleet into your own manifest, with the url of NATS"]
      : ["To see the machines of the fleet and what they export: toolmux fleet"];
  }
  if (error.code === "valueMissing") return missingValueHints(error, spec, env);
  if (spec.kind === "remote") return remoteHintsFor(error, spec);
  switch (error.code) {
    case "notSupported":
      return [
        `The placeholders in a manifest are: ${supportedPlaceholders(spec).join(", ")}.`,
        ...missingPluginHints(spec),
      ];
    case "commandNotFound":
      return missingCommandHints(spec, env);
    case "notExecutable":
      return error.hint === undefined ? notExecutableHints(spec, env) : [error.hint];
    case "spawnFailed":
      if (error.hint !== undefined) return [error.hint];
      return [
        ...(spec.cwd === undefined
          ? []
          : [`Check that its working directory exists: ${absolutePathOf(spec.cwd, spec, env)}`]),
        "If there are too many processes, end some, or raise the limit (ulimit -u).",
      ];
    case "connectTimeout":
      return timeoutHints(error, spec, env);
    case "handshakeFailed":
      return error.step === "list"
        ? ["The server sends an invalid list, or none: look for a newer version of it."]
        : [
            "It may not be an MCP server over stdio, or use an MCP version that toolmux does not support: compare the command with its documentation, or look for a newer version.",
            manualTestHint(spec, env),
          ];
    case "connectionLost": {
      const missing = missingPackageOf(error);
      if (missing !== undefined) {
        return [`npm has no package ${missing}: correct the name in args, or in package.`];
      }
      const cause = stderrCauseOf(error.stderr);
      if (cause !== undefined) return hintsForCause(cause, spec, env);
      return [
        manualTestHint(spec, env),
        "If it works in your terminal, it may need an environment variable: a server gets only a few of yours. Add the others to inheritEnv.",
        // A server that fails usually writes the reason to stderr. A program that is no server, such as `ls`, writes
        // nothing there.
        ...(error.stderr.length === 0
          ? [
              "It wrote nothing to stderr: it may not be an MCP server over stdio. Compare the command with its documentation.",
            ]
          : []),
      ];
    }
    case "notReading":
    case "notResponding":
      return ["The server is running, but it is stuck.", manualTestHint(spec, env)];
    default:
      return generalHintsFor(error, spec);
  }
}

/**
 * The package that npm did not find in its registry (E404), according to the server's stderr; undefined for any other
 * failure.
 */
function missingPackageOf({ stderr }: Pick<HubError, "stderr">): string | undefined {
  const isNotFound = stderr.some((line) => /\bnpm (?:error|ERR!) code E404\b/.test(line));
  if (!isNotFound) return undefined;
  for (const line of stderr) {
    const [, name] =
      /\b404\s+(?:The requested resource )?'?((?:@[\w.~-]+\/)?[\w.~-]+)@[^\s']*'? (?:is not in|could not be found)/.exec(
        line,
      ) ??
      /\bGET \S+\/((?:@[\w.~-]+(?:%2[Ff]|\/))?[\w.~-]+) - Not found/i.exec(line) ??
      [];
    if (name !== undefined) return name.replace(/%2f/i, "/");
  }
  return undefined;
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
    return `Set ${name} in the environment of toolmux: export ${name}=… in your shell, or "env" in the config of the client that starts toolmux. Or set a default in the manifest: ${fallback}`;
  });
  const files = parts.flatMap((part) =>
    part.kind === "file" ? [absolutePathOf(part.path, spec, env)] : [],
  );
  const list = [...new Set(files)].join(", ");
  const secrets = missingSecretsOf(error).map(
    (name) => `Set the secret: toolmux secret set ${name}`,
  );
  return [
    ...secrets,
    ...variables,
    ...(list === "" ? [] : [`Check that these files exist and that you can read them: ${list}`]),
    ...listSchemes(spec).map(
      (scheme) => `Check that the plugin for \${${scheme}:…} has the value.`,
    ),
  ];
}

function missingCommandHints(
  { name, command, baseDir, package: packaged }: StdioServer,
  env: Env,
): string[] {
  if (packaged !== undefined) return missingRunnerHints(packaged, command);
  // No hint is needed: the error message already says how to split the text into command and args.
  if (!command.includes("/") && suggestArgs(command) !== undefined) return [];
  if (command.includes("/")) {
    return [
      command.startsWith("/") || command.startsWith("~") || command.startsWith("$")
        ? "Correct the path (command)."
        : `Correct the path (command); it is relative to ${baseDir}.`,
    ];
  }
  const origin = Object.hasOwn(PRODUCT_OF_COMMAND, command)
    ? PRODUCT_OF_COMMAND[command]
    : undefined;
  const source = origin === undefined || origin === command ? "" : ` (part of ${origin})`;
  const similar = findNearest(command, listPrograms(env["PATH"]));
  const guess = similar === undefined ? "" : ` Did you mean ${similar}?`;
  return [
    `Install ${command}${source}, or correct its name: command of the server "${name}" in the manifest.${guess}`,
    `If your terminal finds it, use its full path as command. To see the path: \`command -v ${quoteForShell(command)}\`. A client can start toolmux with a different PATH than your shell.`,
  ];
}

/** The names of the files in the folders of a PATH. */
function listPrograms(path = ""): readonly string[] {
  const { readdirSync } = process.getBuiltinModule("node:fs");
  return path.split(delimiter).flatMap((folder) => {
    try {
      return readdirSync(folder);
    } catch {
      return [];
    }
  });
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
    `Install ${list}, which can run ${name}.`,
    `If your terminal finds it (command -v ${command}), the client starts toolmux with a different PATH than your shell: set PATH in "env" in the config of the client.`,
  ];
}

function notExecutableHints(spec: StdioServer, env: Env): string[] {
  const { command } = spec;
  const file = command.includes("/")
    ? quoteForShell(absolutePathOf(command, spec, env))
    : `"$(command -v ${quoteForShell(command)})"`;
  return [
    `Make it executable: chmod +x ${file}`,
    "If it is a script, the program in its first line must exist; if it is a binary, it must be built for this system.",
  ];
}

/** Hints about the error that a server has named before it ended. */
function hintsForCause(cause: StderrCause, spec: StdioServer, env: Env): readonly string[] {
  const { name } = spec;
  const test = manualTestHint(spec, env);
  switch (cause.kind) {
    case "file": {
      const isArgument = spec.args.some((arg) => arg !== "" && cause.path.endsWith(arg));
      const place = isArgument
        ? `args of the server "${name}" in the manifest`
        : `the settings of ${name}`;
      return [`Create the file ${cause.path}, or correct its path in ${place}.`, test];
    }
    case "module":
      return cause.language === "python"
        ? [
            `Install the Python module ${cause.name} for the Python that runs ${name}: pip install ${cause.name.split(".")[0]}`,
            test,
          ]
        : [
            `Install the package ${cause.name} in the folder of the server: npm install ${cause.name}`,
            test,
          ];
    case "program":
      return [
        `Install ${cause.name}: the server needs it.`,
        `If your terminal finds it (command -v ${quoteForShell(cause.name)}), toolmux was started with a different PATH: set PATH in env of the server "${name}".`,
      ];
    case "port":
      return [
        cause.port === undefined
          ? `Another program uses the port of ${name}: end that program, or give the server another port.`
          : `Another program uses port ${cause.port}: end it (lsof -i :${cause.port} shows it), or give ${name} another port.`,
      ];
    case "key":
      return cause.name === undefined
        ? [
            `The server does not accept its token or password: correct it in env of the server "${name}" in the manifest.`,
            "If it expects a variable of your shell, add that variable to inheritEnv.",
          ]
        : [
            `Set ${cause.name} for it: env.${cause.name} = "\${secret:${cause.name}}" in the server "${name}" of the manifest, and toolmux secret set ${cause.name}`,
            `If ${cause.name} is set in your shell, add it to inheritEnv of the server.`,
          ];
  }
}

function timeoutHints({ step, stderr }: HubError, spec: StdioServer, env: Env): readonly string[] {
  const cause = stderrCauseOf(stderr);
  if (cause !== undefined) return hintsForCause(cause, spec, env);
  const raiseHint = raiseLimitHint(spec);
  const program = basename(spec.command);
  switch (step) {
    case "resolve":
      return [
        listSchemes(spec).length === 0
          ? "Check the files in its ${file:…}: toolmux cannot finish reading one of them."
          : "Check the files and plugins in its ${…}: one of them gives no value.",
        raiseHint,
      ];
    case "list":
      return [
        raiseHint,
        "If that does not help, the server does not answer when toolmux asks for its tools.",
      ];
    default:
      return DOWNLOADERS.has(program)
        ? [
            `${program} may still be downloading the package: run it once by hand. ${manualTestHint(spec, env)}`,
            raiseHint,
          ]
        : [raiseHint, `It may not be an MCP server over stdio. ${manualTestHint(spec, env)}`];
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
    ? "Run it by hand (replace the placeholders)"
    : "Run it by hand";
  return `${advice}: ${line}`;
}

function missingPluginHints(spec: StdioServer): string[] {
  return listSchemes(spec).map(
    (scheme) => `\${${scheme}:…} needs a plugin that provides it ([[plugins]]).`,
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
