import { resolve } from "node:path";
import type { Env } from "../../base/paths.ts";
import { ownCommand } from "../../base/runtime.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { usageError } from "../args.ts";
import { readHeaders } from "./plan.ts";

/** The one server that the command line is about. */
export type TargetSpec =
  | {
      readonly kind: "url";
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
    }
  | { readonly kind: "command"; readonly command: string; readonly args: readonly string[] };

/** The server that is measured where none is named. */
export const ECHO_SERVER: TargetSpec = (() => {
  const [command, ...before] = ownCommand();
  return { kind: "command", command, args: [...before, "demo", "echo"] };
})();

/** What it is called in the manifest that is written for it. */
const SERVER = "server";
/** As long as it may take to be met: nobody is shown a list that lacks its tools. */
const LIST_WAIT = "60s";
/** In these variables are what headers say, as it may be secret and the manifest is a file. */
const HEADER_VARIABLE = "TOOLMUX_BENCH_HEADER_";

/** Reads it; undefined: it is about a manifest. @throws {HubError} usage */
export function readTarget(
  { words, values, config }: Invocation,
  { cwd }: CommandContext,
): TargetSpec | undefined {
  const url = values.get("url")?.at(-1);
  const [command, ...args] = words;
  const ways = [
    ...(config.length > 0 ? ["--config"] : []),
    ...(url === undefined ? [] : ["--url"]),
    ...(command === undefined ? [] : ["a command"]),
  ];
  if (ways.length > 1) throw usageError(`${ways.join(" and ")} say different things: choose one.`);
  if (url !== undefined) {
    const isHttp = URL.canParse(url) && /^https?:$/.test(new URL(url).protocol);
    if (!isHttp) throw usageError("--url is one that begins with http:// or https://.");
    return { kind: "url", url, headers: readHeaders(values) };
  }
  if (values.has("header")) throw usageError("--header means something only beside --url.");
  if (command === undefined) return undefined;
  return {
    kind: "command",
    command: command.includes("/") ? resolve(cwd, command) : command,
    args,
  };
}

/** Names are those of the server, and a command gets the whole environment, as it would in a shell. */
export function writeManifest(target: TargetSpec, env: Env): string {
  return JSON.stringify({
    hub: { clientPrefix: "", nameLimit: 128, listWait: LIST_WAIT },
    servers: { [SERVER]: { ...writeEntry(target, env), prefix: "" } },
  });
}

function writeEntry(target: TargetSpec, env: Env): object {
  const literal = (text: string): string => text.replaceAll("${", () => "$${");
  if (target.kind === "url") {
    const names = Object.keys(target.headers);
    const headers = names.map((name, at): [string, string] => [
      name,
      `\${env:${HEADER_VARIABLE}${at}}`,
    ]);
    return { url: literal(target.url), headers: Object.fromEntries(headers) };
  }
  const inheritEnv = Object.keys(env).filter(
    (name) => /^[A-Za-z_]\w*$/.test(name) && !name.startsWith("TOOLMUX_"),
  );
  return { command: literal(target.command), args: target.args.map(literal), inheritEnv };
}

/** The variables that the manifest refers to. */
export function listVariables(target: TargetSpec): Env {
  if (target.kind !== "url") return {};
  const said = Object.values(target.headers);
  return Object.fromEntries(said.map((value, at) => [`${HEADER_VARIABLE}${at}`, value]));
}
