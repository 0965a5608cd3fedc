import { usageError } from "../base/errors.ts";
import type { ClientFlags } from "../host/attach.ts";
import type { ServeCommandOptions } from "./commands/serve.ts";

/** The options of `serve` that a shared hub can apply to one client. */
type ClientOptions = Pick<
  ServeCommandOptions,
  "mode" | "expose" | "servers" | "approval" | "approve-all"
>;

/** Options that the shared hub cannot apply to one client. */
const OWN_OPTIONS = ["http", "dashboard", "record"] as const;

/** The name of the first option that is given and needs a hub of its own; undefined: there is none. */
export function ownOptionIn(
  options: Pick<ServeCommandOptions, (typeof OWN_OPTIONS)[number]>,
): string | undefined {
  return OWN_OPTIONS.find((name) => options[name] !== undefined && options[name] !== false);
}

/** What the options say about the client. @throws {HubError} usage */
export function clientFlags(options: ClientOptions): ClientFlags {
  const { mode, expose, servers, approval } = options;
  return {
    mode,
    expose,
    servers: servers === undefined ? undefined : serverNamesIn(servers),
    approval: options["approve-all"] ? "all" : approval,
  };
}

/** The names in `--servers`. @throws {HubError} usage */
export function serverNamesIn(list: string): readonly string[] {
  const names = list.split(",").map((name) => name.trim());
  if (names.includes("")) throw usageError("--servers needs names of servers: --servers files,git");
  return names;
}
