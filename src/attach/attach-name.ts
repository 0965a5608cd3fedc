import { Buffer } from "node:buffer";
import process from "node:process";
import { sha256 } from "../base/bytes.ts";
import { type Env, realPathOf } from "../base/paths.ts";
import { serversVariableOf } from "../manifest/manifest.ts";
import { ATTACH_PROTOCOL } from "./handshake.ts";

/** Number of hexadecimal digits of a key. */
const KEY_LENGTH = 12;

/** The parts of the name of an attach socket. */
export interface AttachName {
  readonly key: string;
  /** The version of the handshake. */
  readonly protocol: number;
  /** The version of the hub. */
  readonly version: string;
}

/**
 * The key of the hubs that this user's clients share for a manifest: 12 hexadecimal digits.
 * @param sources the files of the manifest, absolute, in the order of merging
 */
export function attachKey(sources: readonly string[], env: Env): string {
  const files = sources.map((file) => realPathOf(file) ?? file);
  const text = JSON.stringify([process.getuid?.() ?? -1, files, serversVariableOf(env)]);
  return Buffer.from(sha256(text)).toString("hex").slice(0, KEY_LENGTH);
}

export function formatAttachName({ key, protocol, version }: AttachName): string {
  return `${key}-${protocol}-${version}.attach.sock`;
}

/** The name of the socket of a hub of this version. */
export function ownAttachName(key: string, version: string): string {
  return formatAttachName({ key, protocol: ATTACH_PROTOCOL, version });
}

/** @returns undefined if the name of a file is not that of an attach socket */
export function parseAttachName(name: string): AttachName | undefined {
  const [, key, protocol, version] =
    /^([0-9a-f]{12})-([1-9]\d{0,3})-([0-9A-Za-z.+-]{1,64})\.attach\.sock$/.exec(name) ?? [];
  if (key === undefined || version === undefined) return undefined;
  return { key, protocol: Number(protocol), version };
}
