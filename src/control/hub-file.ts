import * as v from "valibot";
import { readPrivate } from "../base/private-files.ts";
import { type HubFile, hubFileSchema } from "./schemas.ts";

/** Maximum size of the file beside a socket, in bytes. */
const MAX_FILE = 64 * 1024;

/** Reads the file beside a control socket, which describes its hub. @returns undefined if it cannot be read */
export async function readHubFile(socket: string): Promise<HubFile | undefined> {
  const bytes = await readPrivate(socket.replace(/\.sock$/, ".json"), MAX_FILE);
  if (bytes === undefined) return undefined;
  try {
    const result = v.safeParse(hubFileSchema, JSON.parse(bytes.toString()));
    return result.success ? result.output : undefined;
  } catch {
    return undefined;
  }
}
