import { decodeCursor } from "./section.ts";
import { HubError } from "../base/errors.ts";
import { lastMember, scanObject, readString } from "../base/json.ts";
import type { Request } from "../jsonrpc/message.ts";

/**
 * The name after which a page of a list starts; undefined if the request has no cursor.
 * @throws {HubError} invalidParams if the cursor is not one of that list
 */
export function readCursorParam(list: string, { bytes, params }: Request): string | undefined {
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const member = lastMember(members, "cursor");
  if (member === undefined) return undefined;
  const cursor = readString(bytes, member);
  const after = cursor === undefined ? undefined : decodeCursor(list, cursor);
  if (after !== undefined) return after;
  throw new HubError("invalidParams", "The cursor is not one of this hub's.");
}
