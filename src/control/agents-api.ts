import { systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { ConversationStore } from "../agent/conversation-store.ts";
import type { Conversations, Conversation, ConversationAgent } from "./conversations.ts";
import type { RoutesBelow } from "./endpoints.ts";
import { notFound } from "./requests.ts";
import type { Handlers } from "./routes.ts";
import type { AgentDocument } from "./schemas.ts";

/** The agents of a hub's manifest, and those in files and in the store. Each method reads the manifest again. */
export interface HubAgents {
  /** All agents, and why some cannot be used. */
  list(): Promise<readonly AgentDocument[]>;
  /**
   * Makes an agent ready to run with the tools of this hub.
   * @param name its name in the list, or the path or the reference of its file
   * @throws {HubError} agentNotFound, agentInvalid or manifestInvalid; the errors of opening its model
   */
  open(
    name: string,
    options: { readonly model?: string | undefined; readonly mode?: string | undefined },
  ): Promise<ConversationAgent>;
  /** The conversations that are kept of this user. */
  conversations(): Promise<ConversationStore>;
  /** The manifest of the agents; see `ConversationHeader`. */
  from(): Promise<string>;
  /** Ends all agents that are open, with the servers of their files. Never rejects. */
  close(): Promise<void>;
}

/** How long the end of a run is waited for before a conversation is forgotten, in ms. */
const FORGET_LIMIT = 10_000;

/** The endpoints with which a person talks to agents that run in the hub. */
export function agentHandlers(
  agents: HubAgents,
): Pick<Handlers, RoutesBelow<"/agents" | "/runs" | "/conversations">> {
  // The code for conversations is loaded when it is first needed.
  let conversations: Promise<Conversations> | undefined;
  const loadConversations = async (): Promise<Conversations> => {
    const { Conversations: Loaded } = await import("./conversations.ts");
    return new Loaded({
      clock: systemClock,
      openStore: () => agents.conversations(),
      readFrom: () => agents.from(),
      openAgent: (name) => agents.open(name, {}),
    });
  };
  const loaded = (): Promise<Conversations> => (conversations ??= loadConversations());
  const conversationOf = async (id: string): Promise<Conversation> => {
    const conversation = await (await conversations)?.get(id);
    if (conversation === undefined) throw notFound(`run "${id}" of an agent`);
    return conversation;
  };

  return {
    "GET /agents": async () => ({ agents: await agents.list() }),
    "POST /agents/:name/runs": async ({ params: { name }, body: { message, model, mode } }) => {
      const opened = await agents.open(name, { model, mode }).catch(async (error: unknown) => {
        if (!(error instanceof HubError) || error.code !== "agentNotFound") throw error;
        const known = await agents.list();
        throw notFound(
          `agent "${name}"`,
          name,
          known.map((agent) => agent.name),
        );
      });
      const conversation = await (await loaded()).start(opened);
      conversation.send(message);
      return conversation.document;
    },
    "GET /runs": async () => {
      const open = (await (await conversations)?.all()) ?? [];
      return { runs: open.map(({ document }) => document) };
    },
    "GET /runs/:id": async ({ params: { id } }) => (await conversationOf(id)).document,
    "GET /runs/:id/events": async ({ params: { id }, query: { after = 0 } }) =>
      (await conversationOf(id)).open(after),
    "POST /runs/:id/message": async ({ params: { id }, body: { message, mode } }) => {
      const conversation = await conversationOf(id);
      if (mode !== undefined) await conversation.setMode(mode);
      conversation.send(message);
      return conversation.document;
    },
    "POST /runs/:id/cancel": async ({ params: { id } }) => {
      const conversation = await conversationOf(id);
      conversation.cancel();
      return conversation.document;
    },
    "DELETE /runs/:id": async ({ params: { id } }) => {
      const conversation = await conversationOf(id);
      (await conversations)?.close(conversation);
    },
    "GET /conversations": async () => {
      const all = await loaded();
      const [kept, runs] = await Promise.all([all.kept(), all.all()]);
      const open = new Set(runs.map(({ session }) => session.id));
      return {
        conversations: kept.map(({ id, agent, title, created, lastUsed, size }) => ({
          id,
          agent,
          title,
          created,
          lastUsed,
          size,
          open: open.has(id),
        })),
      };
    },
    "POST /conversations/:id/open": async ({ params: { id } }) => {
      const conversation = await (await loaded()).resume(id);
      if (conversation === undefined) throw notFound(`conversation "${id}"`);
      return conversation.document;
    },
    "DELETE /conversations/:id": async ({ params: { id } }) => {
      const isForgotten = await (await loaded()).forget(id, AbortSignal.timeout(FORGET_LIMIT));
      if (!isForgotten) throw notFound(`conversation "${id}"`);
    },
  };
}
