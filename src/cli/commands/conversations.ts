import { basename } from "node:path";
import { usageError } from "../../base/errors.ts";
import { formatAge, formatSize } from "../../base/format.ts";
import { forgetConversation, listConversations, shownId } from "../../operations/conversations.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, Invocation } from "../command.ts";

/** `toolmux chat list`: the conversations that are kept, the last used first. */
export async function printConversations(
  invocation: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const kept = await listConversations(invocation, context);
  if (invocation.options.json) {
    terminal.printJson({ conversations: kept });
    return 0;
  }
  if (kept.length === 0) {
    terminal.print("No conversation is kept. Begin one: toolmux chat");
    return 0;
  }
  const now = Date.now();
  terminal.printTable(
    ["ID", "AGENT", "LAST USED", "SIZE", "BEGINS WITH"],
    kept.map((one) => [
      { text: shownId(one), isWhole: true },
      sanitizeLine(basename(one.agent)),
      formatAge(now - one.lastUsed),
      formatSize(one.size),
      sanitizeLine(one.title),
    ]),
  );
  return 0;
}

/** `toolmux chat forget ID`: removes conversations that are kept. */
export async function forgetConversations(
  ids: readonly string[],
  invocation: Invocation,
  context: CommandContext,
): Promise<number> {
  if (ids.length === 0) throw usageError("Which conversation? toolmux chat forget ID");
  for (const id of ids) {
    const forgotten = await forgetConversation(id, invocation, context);
    context.terminal.print(`forgotten: ${shownId(forgotten)} ${sanitizeLine(forgotten.title)}`);
  }
  return 0;
}
