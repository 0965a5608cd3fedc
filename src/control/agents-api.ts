import type { WithUndefined } from "../operations/documents.ts";
import type { Context, Hono } from "hono";
import { systemClock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Conversations, Conversation, ConversationAgent } from "./conversations.ts";
import { notFound, parseNumberParam, readBody } from "./requests.ts";
import {
  type AgentDocument,
  type RunDocument,
  runMessageSchema,
  runRequestSchema,
} from "./schemas.ts";

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

/**
 * Adds the endpoints with which a person talks to agents that run in the hub.
 * @param answer makes the response with a document, without secrets
 */
export function addAgentRoutes(
  api: Hono,
  agents: HubAgents,
  answer: (c: Context, document: object, status?: 200 | 201 | 202) => Response,
): void {
  // The code for conversations is loaded when it is first needed.
  let conversations: Promise<Conversations> | undefined;
  const loadConversations = async (): Promise<Conversations> => {
    const { Conversations: Loaded } = await import("./conversations.ts");
    return new Loaded(systemClock);
  };
  const conversationOf = async (c: Context): Promise<Conversation> => {
    const conversation = (await conversations)?.get(c.req.param("id") ?? "");
    if (conversation === undefined) throw notFound(`run "${c.req.param("id") ?? ""}" of an agent`);
    return conversation;
  };

  api.get("/agents", async (c) => answer(c, { agents: await agents.list() }));

  api.post("/agents/:name/runs", async (c) => {
    const { message, model, mode } = await readBody(c, runRequestSchema);
    const name = c.req.param("name");
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
    return answer(c, conversation.document satisfies WithUndefined<RunDocument>, 201);
  });

  api.get("/runs", async (c) => {
    const all = (await conversations)?.all ?? [];
    return answer(c, { runs: all.map(({ document }) => document) });
  });
  api.get("/runs/:id", async (c) => answer(c, (await conversationOf(c)).document));
  api.get("/runs/:id/events", async (c) => {
    const after = c.req.query("after") ?? c.req.header("Last-Event-ID") ?? "0";
    const stream = (await conversationOf(c)).open(parseNumberParam(after, "after"));
    return c.body(stream, 200, {
      "Content-Type": "text/event-stream",
      "Cache-Control": "no-cache, no-transform",
    });
  });
  api.post("/runs/:id/message", async (c) => {
    const conversation = await conversationOf(c);
    const { message, mode } = await readBody(c, runMessageSchema);
    if (mode !== undefined) await conversation.setMode(mode);
    conversation.send(message);
    return answer(c, conversation.document, 202);
  });
  api.post("/runs/:id/cancel", async (c) => {
    const conversation = await conversationOf(c);
    conversation.cancel();
    return answer(c, conversation.document, 202);
  });
  api.delete("/runs/:id", async (c) => {
    const conversation = await conversationOf(c);
    (await conversations)?.close(conversation);
    return c.body(null, 204);
  });
}
