import { type Env, realPathOf } from "../base/paths.ts";
import { type Manifest, serversVariableOf } from "./manifest.ts";
import { sha256Hex } from "./trust.ts";

/** Number of hexadecimal digits of the hash that identifies a manifest. */
const IDENTITY_LENGTH = 16;

/**
 * A hash that identifies a manifest by its files and the text of TOOLMUX_SERVERS or, without both, by its servers.
 */
export async function manifestIdentity(
  { sources, servers }: Pick<Manifest, "sources" | "servers">,
  env: Env,
): Promise<string> {
  const files = sources.map((file) => realPathOf(file) ?? file);
  const variable = serversVariableOf(env);
  const hasNoSource = files.length === 0 && variable === "";
  const text = JSON.stringify([files, variable, hasNoSource ? servers : []]);
  return (await sha256Hex(new TextEncoder().encode(text))).slice(0, IDENTITY_LENGTH);
}
