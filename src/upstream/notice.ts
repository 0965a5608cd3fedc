import type { Range } from "../bytes.ts";
import { lastMember, type Member, scanObject, stringOf, valueOf } from "../json.ts";
import type { Notification } from "../wire/jsonrpc.ts";

/** The longest text of a log message that is kept, in characters. */
const LONGEST = 2000;

/** Which request a progress notification is about, and where its token stands; the last of several counts, as in parsers. */
export function readProgress(
  notification: Notification,
): { id: number; tokens: readonly Range[] } | undefined {
  const tokens = membersOf(notification).filter((member) => member.key === "progressToken");
  const token = tokens.at(-1);
  if (token === undefined) return undefined;
  return { id: Number(valueOf(notification.bytes, token)), tokens };
}

/** What a log message says, as text. */
export function readLog(notification: Notification): string | undefined {
  const { bytes } = notification;
  const data = lastMember(membersOf(notification), "data");
  if (data === undefined) return undefined;
  const text = stringOf(bytes, data) ?? JSON.stringify(valueOf(bytes, data));
  return text.slice(0, LONGEST);
}

function membersOf({ bytes, params }: Notification): readonly Member[] {
  return (params && scanObject(bytes, params.start)?.items) ?? [];
}
