import type { Invocation, World } from "../command.ts";
import { usage } from "../args.ts";

/** Logs in to a server over HTTP, logs out, or says how it stands. */
export async function auth(invocation: Invocation, world: World): Promise<number> {
  const [verb, ...names] = invocation.words;
  const [name] = names;
  if (verb === "status") {
    return (await import("./status-part.ts")).tellStandings(invocation, world, names);
  }
  if (verb !== "login" && verb !== "logout") {
    throw usage(`auth is followed by login, logout or status, not by "${verb}".`);
  }
  if (name === undefined || names.length > 1) {
    throw usage(`auth ${verb} needs the name of one server.`);
  }
  const { login, logout } = await import("./login.ts");
  return verb === "login" ? login(invocation, world, name) : logout(invocation, world, name);
}
