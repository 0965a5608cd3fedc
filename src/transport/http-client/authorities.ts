import { readFile } from "node:fs/promises";
import * as tls from "node:tls";
import { HubError } from "../../base/errors.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Variables that name a file with certificates, in PEM. */
const VARIABLES = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"] as const;

/**
 * The certificates that are trusted: those of the system or the runtime, what the manifest adds, and what the environment's
 * `NODE_EXTRA_CA_CERTS` and `SSL_CERT_FILE` name.
 * @returns undefined if nothing is added to the runtime's own
 * @throws {HubError} tlsFailed if a file cannot be read
 */
export async function loadTrustedCertificates(
  ca: string | undefined,
  env: Env,
): Promise<readonly string[] | undefined> {
  const added = ca === undefined ? [] : [ca];
  for (const name of VARIABLES) {
    const path = env[name];
    if (path !== undefined && path !== "") added.push(await readPem(name, path));
  }
  return added.length === 0 ? undefined : [...usual(), ...added];
}

async function readPem(name: string, path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const text = `The certificates that ${name} names (${path}) cannot be read: ${reasonOf(error)}.`;
    throw new HubError("tlsFailed", text, { step: "dial" });
  }
}

function reasonOf(error: unknown): string {
  return (error as { code?: unknown }).code === "ENOENT" ? "there is no such file" : String(error);
}

/** What is trusted if nothing is added. Naming any certificates takes the place of these. */
function usual(): readonly string[] {
  const known: { getCACertificates?(kind: "default" | "system"): readonly string[] } = tls;
  if (known.getCACertificates === undefined) return tls.rootCertificates;
  return [
    ...new Set([...known.getCACertificates("default"), ...known.getCACertificates("system")]),
  ];
}
