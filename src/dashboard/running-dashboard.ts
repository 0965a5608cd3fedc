import { Buffer } from "node:buffer";
import { once } from "node:events";
import { readdir, rm } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import * as v from "valibot";
import { type SystemEnvironment, stateFolder } from "../base/paths.ts";
import { ensurePrivateFolder, readPrivate, replacePrivate } from "../base/private-files.ts";
import { type Dashboard, computeProof, isProof } from "./dashboard.ts";
import { makeToken } from "./tokens.ts";

type Places = Pick<SystemEnvironment, "env" | "platform">;

/** Maximum size of the file of a running dashboard (see `registerDashboard`), and of an answer, in bytes. */
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

/** Where a dashboard is served: the address of its page, and the port by which commands find it. */
export interface DashboardAddress {
  readonly url: string;
  readonly port: number;
}

/**
 * Writes the file with which `findDashboard` finds a running dashboard. The file's name has the port, its content the
 * key. Only this user can read the file.
 * @returns a function that removes the file
 */
export async function registerDashboard(
  { key }: Pick<Dashboard, "key">,
  { url, port }: DashboardAddress,
  places: Places,
): Promise<() => Promise<void>> {
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
  const token = await requestToken(url, key);
  return token === undefined ? undefined : { pid, url: addressOf(url, token) };
}

/** Whether a dashboard itself answers at its port of an IP address. @param url the address of its page */
export async function isServedAt(
  address: string,
  url: string,
  { key }: Pick<Dashboard, "key">,
): Promise<boolean> {
  return (await requestToken(url, key, address)) !== undefined;
}

/**
 * Requests a one-time token from a dashboard. The connection goes to a loopback address, because not every resolver
 * knows names below `localhost`.
 * @returns undefined if nobody who has the key answers
 */
async function requestToken(
  url: string,
  key: string,
  address = "127.0.0.1",
): Promise<string | undefined> {
  const nonce = makeToken();
  const { host, origin, pathname, port } = new URL(url);
  const headers = {
    Host: host,
    Origin: origin,
    Authorization: `Bearer ${computeProof(key, "ask", nonce)}`,
    "Content-Type": "application/json",
  };
  const path = `${pathname}api/tokens`;
  const signal = AbortSignal.timeout(ASK_TIMEOUT);
  try {
    const { request } = await import("node:http");
    const sent = request({
      host: address,
      port: Number(port),
      path,
      method: "POST",
      headers,
      agent: false,
      signal,
    });
    sent.end(JSON.stringify({ nonce }));
    const [response] = (await once(sent, "response", { signal })) as [IncomingMessage];
    const { token, proof } = v.parse(answerSchema, JSON.parse(await readText(response)));
    return isProof(proof, key, "answer", `${nonce} ${token}`) ? token : undefined;
  } catch {
    return undefined;
  }
}

/** Reads the body of an answer. @throws {Error} if it is larger than `MAX_FILE` */
async function readText(response: IncomingMessage): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Uint8Array>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size <= MAX_FILE) continue;
    response.destroy();
    throw new Error("The answer is too large.");
  }
  return Buffer.concat(chunks).toString();
}

/** The address that opens the page once. */
export function addressOf(url: string, token: string): string {
  return `${url}#token=${token}`;
}

/**
 * Writes an HTML file that redirects a browser to a URL with a token; the file is removed when the dashboard ends.
 * The browser is started with the path of this file, because other users can see its command line, but cannot read the
 * file.
 * @returns the URL of the file
 */
export async function writeRedirect(
  { url, port }: DashboardAddress,
  places: Places,
): Promise<string> {
  const path = redirectOf(port, places);
  await ensurePrivateFolder(folderOf(places));
  const text = `<!doctype html><meta charset="utf-8"><title>toolmux</title><meta http-equiv="refresh" content="0;url=${url}"><a href="${url}">Open the dashboard</a>\n`;
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

async function readFileOf(path: string): Promise<v.InferOutput<typeof fileSchema> | undefined> {
  const bytes = await readPrivate(path, MAX_FILE);
  if (bytes === undefined) return undefined;
  try {
    return v.parse(fileSchema, JSON.parse(bytes.toString()));
  } catch {
    return undefined;
  }
}
