import { Buffer } from "node:buffer";
import { join } from "node:path";
import { type Env, findHomeFolder } from "../base/paths.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import { isTable } from "../manifest/table.ts";
import { DOCKER_HUB } from "./reference.ts";
import type { RegistryCredentials } from "./registry.ts";

const MAX_SIZE = 1024 * 1024;

/**
 * The credentials that `docker login` has written into `config.json` for a registry. Undefined if there are none, if
 * the file cannot be used, or if a credential helper keeps them.
 */
export async function readDockerCredentials(
  host: string,
  env: Env,
): Promise<RegistryCredentials | undefined> {
  const home = findHomeFolder(env);
  const folder = env["DOCKER_CONFIG"] || (home && join(home, ".docker"));
  if (folder === undefined) return undefined;
  const read = await readFileLimited(join(folder, "config.json"), MAX_SIZE);
  if (read.kind !== "read") return undefined;
  let auths: unknown;
  try {
    const config: unknown = JSON.parse(decodeUtf8(read.bytes) ?? "");
    auths = isTable(config) ? config["auths"] : undefined;
  } catch {
    return undefined;
  }
  for (const [key, entry] of Object.entries(isTable(auths) ? auths : {})) {
    if (hostOfKey(key) !== host || !isTable(entry)) continue;
    const { auth, username, password } = entry;
    if (typeof auth === "string" && auth !== "") {
      const text = Buffer.from(auth, "base64").toString("utf8");
      const colon = text.indexOf(":");
      if (colon > 0) return { username: text.slice(0, colon), password: text.slice(colon + 1) };
    }
    if (typeof username === "string" && typeof password === "string") return { username, password };
  }
  return undefined;
}

/** The registry's host in a key of `auths`, which is a host or a URL such as `https://index.docker.io/v1/`. */
function hostOfKey(key: string): string {
  const host = key
    .replace(/^https?:\/\//, "")
    .replace(/\/.*$/, "")
    .toLowerCase();
  return host === `index.${DOCKER_HUB}` || host === `registry-1.${DOCKER_HUB}` ? DOCKER_HUB : host;
}
