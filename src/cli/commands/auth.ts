import { runLogin, runLogout } from "./login.ts";
import { printAuthStatus } from "./status-part.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { usageError } from "../args.ts";

/** Logs in to a server over HTTP, logs out, or says how it stands. */
export async function auth(invocation: Invocation, world: CommandContext): Promise<number> {
  const [verb, ...names] = invocation.words;
  const [name] = names;
  if (verb === "status") {
    return printAuthStatus(invocation, world, names);
  }
  if (verb !== "login" && verb !== "logout") {
    throw usageError(`auth is followed by login, logout or status, not by "${verb}".`);
  }
  if (name === undefined || names.length > 1) {
    throw usageError(`auth ${verb} needs the name of one server.`);
  }
  return verb === "login" ? runLogin(invocation, world, name) : runLogout(invocation, world, name);
}
