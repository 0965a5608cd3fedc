import { writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import type { Attachment } from "./content.ts";

/** Of media types that are no subtype with a `x-` or `+` in it. */
const EXTENSIONS: Readonly<Record<string, string>> = {
  "image/jpeg": ".jpg",
  "image/svg+xml": ".svg",
  "image/x-icon": ".ico",
  "audio/mpeg": ".mp3",
  "audio/mp4": ".m4a",
  "audio/x-wav": ".wav",
  "text/plain": ".txt",
  "text/markdown": ".md",
  "text/javascript": ".js",
  "application/gzip": ".gz",
  "application/octet-stream": ".bin",
};

/** Longer names are cut, in characters; file systems take 255 bytes. */
const MAX_NAME = 80;

/** `[image: image/png, 12.3 KB]`; what a terminal cannot show. */
export function describeAttachment({ what, type, name, bytes }: Attachment): string {
  return `[${what}: ${[name, type, printSize(bytes.length)].filter(Boolean).join(", ")}]`;
}

/**
 * Saves an attachment in a folder. Nothing is ever overwritten or followed: the name
 * is a plain one, and a file that is there already makes it another. @returns the file's path.
 */
export async function saveAttachment(attachment: Attachment, folder: string): Promise<string> {
  const name = attachmentFileName(attachment);
  const extension = extname(name);
  const stem = name.slice(0, name.length - extension.length);
  for (let count = 1; ; count++) {
    const path = join(folder, count === 1 ? name : `${stem}-${count}${extension}`);
    try {
      await writeFile(path, attachment.bytes, { flag: "wx" });
      return path;
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
    }
  }
}

/** The last part of the server's own name if that leaves anything, else what it is; with an extension in any case. */
export function attachmentFileName({ what, type, name }: Attachment): string {
  const [path = ""] = name.split(/[?#]/);
  const last = path.split(/[/\\]/).findLast((part) => part !== "") ?? "";
  const safe = unescape(last).replace(/[^A-Za-z0-9._-]+/g, "_");
  const own = /^(?<stem>.+?)(?<extension>\.[A-Za-z0-9]{1,10})?$/.exec(safe)?.groups;
  const extension = own?.["extension"] ?? findExtension(type);
  const stem = own?.["stem"]?.replace(/^[._-]+|[._-]+$/g, "").slice(0, MAX_NAME);
  return `${stem || what}${extension}`;
}

function unescape(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function findExtension(type: string): string {
  const [plain = ""] = type.toLowerCase().split(";");
  const known = EXTENSIONS[plain.trim()];
  const subtype = /^[a-z]+\/([a-z0-9]{1,10})$/.exec(plain.trim())?.[1];
  return known ?? (subtype === undefined ? ".bin" : `.${subtype}`);
}

/** 512 B, 12.3 KB, 4.0 MB. */
function printSize(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 999_950 ? `${(bytes / 1e3).toFixed(1)} KB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
