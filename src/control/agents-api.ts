import { systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Conversations, Conversation, ConversationAgent } from "./conversations.ts";
import type { RoutesBelow } from "./endpoints.ts";
import { notFound } from "./requests.ts";
import type { Handlers } from "./routes.ts";
import type { AgentDocument } from "./schemas.ts";

/** The agents of a hub's manifest. Each method reads the manifest again. */
export interface HubAgents {
  /** All agents, and why some cannot be used. */
  list(): Promise<readonly AgentDocument[]>;
  /**
   * Makes an agent ready to run with the tools of this hub.
   * @throws {HubError} agentNotFound, agentInvalid or manifestInvalid; the errors of opening its model
   */
  open(
    name: string,
    options: { readonly model?: string | undefined; readonly mode?: string | undefined },
  ): Promise<ConversationAgent>;
}

/** The endpoints with which a person talks to agents that run in the hub. */
export function agentHandlers(agents: HubAgents): Pick<Handlers, RoutesBelow<"/agents" | "/runs">> {
  // The code for conversations is loaded when it is first needed.
  let conversations: Promise<Conversations> | undefined;
  const loadConversations = async (): Promise<Conversations> => {
    const { Conversations: Loaded } = await import("./conversations.ts");
    return new Loaded(systemClock);
  };
  const conversationOf = async (id: string): Promise<Conversation> => {
    const conversation = (await conversations)?.get(id);
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
      const conversation = (await (conversations ??= loadConversations())).start(opened);
      conversation.send(message);
      return conversation.document;
    },
    "GET /runs": async () => {
      const all = (await conversations)?.all ?? [];
      return { runs: all.map(({ document }) => document) };
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
  };
}
