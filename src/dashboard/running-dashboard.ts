import { Buffer } from "node:buffer";
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import * as v from "valibot";
import { type SystemEnvironment, stateFolder } from "../base/paths.ts";
import { ensurePrivateFolder, readPrivate, replacePrivate } from "../base/private-files.ts";
import { type Dashboard, computeProof, isProof } from "./dashboard.ts";
import { makeToken } from "./tokens.ts";

type Places = Pick<SystemEnvironment, "env" | "platform">;

/** Maximum size of the file of a running dashboard (see `registerDashboard`), in bytes. */
const MAX_FILE = 4096;
/** Time limit of the request for a token, in ms. */
const ASK_TIMEOUT = 2000;

const fileSchema = v.object({ pid: v.number(), url: v.string(), key: v.string() });
const answerSchema = v.object({ token: v.string(), proof: v.string() });

/** A dashboard that runs in another process. */
export interface RunningDashboard {
  readonly pid: number;
  /** The address of its page, with a new one-time token. */
  readonly url: string;
}

/**
 * Writes the file with which `findDashboard` finds a running dashboard. The file's name has the port, its content the
 * key. Only this user can read the file.
 * @returns a function that removes the file
 */
export async function registerDashboard(
  { key }: Pick<Dashboard, "key">,
  url: string,
  places: Places,
): Promise<() => Promise<void>> {
  const port = portOf(url);
  await ensurePrivateFolder(folderOf(places));
  await removeDead(places);
  const path = pathOf(port, places);
  const document = { pid: process.pid, url, key };
  await replacePrivate(path, Buffer.from(`${JSON.stringify(document)}\n`));
  return async () => {
    const now = await readFileOf(path);
    if (now?.key !== key) return;
    await Promise.all([path, redirectOf(port, places)].map((one) => rm(one, { force: true })));
  };
}

/** Removes the files of dashboards that were killed. */
async function removeDead(places: Places): Promise<void> {
  const folder = folderOf(places);
  for (const name of await readdir(folder)) {
    const [, port] = /^(\d+)\.(?:json|html)$/.exec(name) ?? [];
    if (port === undefined) continue;
    const file = await readFileOf(pathOf(Number(port), places));
    if (file === undefined || !isRunning(file.pid)) await rm(join(folder, name), { force: true });
  }
}

/** Whether a process with that id exists; it may no longer be the dashboard. */
function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/**
 * The dashboard of this user on a port, with a new one-time token; undefined if there is none. Both sides prove that
 * they have the key, which is never sent: another user's program on that port learns nothing, and is not trusted.
 */
export async function findDashboard(
  port: number,
  places: Places,
): Promise<RunningDashboard | undefined> {
  const file = await readFileOf(pathOf(port, places));
  if (file === undefined) return undefined;
  const { pid, url, key } = file;
  const nonce = makeToken();
  try {
    const response = await fetch(new URL("api/tokens", url), {
      method: "POST",
      headers: {
        Authorization: `Bearer ${computeProof(key, "ask", nonce)}`,
        "Content-Type": "application/json",
        Origin: new URL(url).origin,
      },
      body: JSON.stringify({ nonce }),
      redirect: "error",
      signal: AbortSignal.timeout(ASK_TIMEOUT),
    });
    const { token, proof } = v.parse(answerSchema, await response.json());
    const isOwn = isProof(proof, key, "answer", `${nonce} ${token}`);
    return isOwn ? { pid, url: addressOf(url, token) } : undefined;
  } catch {
    return undefined;
  }
}

/** The address that opens the page once. */
export function addressOf(url: string, token: string): string {
  return `${url}#token=${token}`;
}

/**
 * Writes an HTML file that redirects a browser to an address with a token; the file is removed when the dashboard ends.
 * The browser is started with the path of this file, because other users can see its command line, but cannot read the
 * file.
 * @returns the URL of the file
 */
export async function writeRedirect(address: string, places: Places): Promise<string> {
  const path = redirectOf(portOf(address), places);
  await ensurePrivateFolder(folderOf(places));
  const text = `<!doctype html><meta charset="utf-8"><title>toolmux</title><meta http-equiv="refresh" content="0;url=${address}"><a href="${address}">Open the dashboard</a>\n`;
  await replacePrivate(path, Buffer.from(text));
  return pathToFileURL(path).href;
}

function folderOf({ env, platform }: Places): string {
  return join(stateFolder(env, platform), "dashboard");
}

function pathOf(port: number, places: Places): string {
  return join(folderOf(places), `${port}.json`);
}

function redirectOf(port: number, places: Places): string {
  return join(folderOf(places), `${port}.html`);
}

function portOf(url: string): number {
  return Number(new URL(url).port);
}

async function readFileOf(path: string): Promise<v.InferOutput<typeof fileSchema> | undefined> {
  const bytes = await readPrivate(path, MAX_FILE);
  if (bytes === undefined) return undefined;
  try {
    return v.parse(fileSchema, JSON.parse(bytes.toString()));
  } catch {
    return undefined;
  }
}
