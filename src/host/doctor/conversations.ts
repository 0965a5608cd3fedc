import { join } from "node:path";
import { CONVERSATIONS_FOLDER, ConversationStore } from "../../agent/conversation-store.ts";
import { count, formatAge, formatSize } from "../../base/format.ts";
import { stateFolder } from "../../base/paths.ts";
import { HUB_DEFAULTS, type Manifest } from "../../manifest/manifest.ts";
import { conversationLimits } from "../../operations/conversations.ts";
import type { HostContext } from "../context.ts";
import type { Finding } from "./findings.ts";

/** Tells how many conversations with agents are kept, how large they are, and for how long. */
export async function checkConversations(
  manifest: Manifest | undefined,
  { env, platform }: Pick<HostContext, "env" | "platform">,
  now: number,
): Promise<readonly Finding[]> {
  const { hub } = manifest ?? { hub: HUB_DEFAULTS };
  const folder = stateFolder(env, platform);
  const store = new ConversationStore({
    stateFolder: folder,
    limits: conversationLimits(hub),
    mask: (text) => text,
    warn: () => {},
  });
  const { count: number, size, oldest, ofClients } = await store.usage();
  if (number === 0) return [];
  const clients = ofClients === 0 ? "" : `, ${ofClients} of them of clients`;
  const text = `${count(number, "conversation")} with agents ${number === 1 ? "is" : "are"} kept (${formatSize(size)}${clients}); the oldest was last used ${formatAge(now - oldest)}. Each is kept ${count(hub.conversationDays, "day")} after its last message, all together up to ${formatSize(hub.conversationSize)}.`;
  return [
    {
      code: "TM607",
      subject: join(folder, CONVERSATIONS_FOLDER),
      text,
      advice: "To see and forget yours: toolmux chat list, toolmux chat forget ID",
    },
  ];
}
