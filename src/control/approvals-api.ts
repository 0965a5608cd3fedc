import type { WithUndefined } from "../operations/documents.ts";
import type { Context, Hono } from "hono";
import { HubError } from "../base/errors.ts";
import type { Hub } from "../hub/hub.ts";
import { conflict, notFound, readBody } from "./requests.ts";
import {
  acceptToolsSchema,
  approvalAnswerSchema,
  type ApprovalDocument,
  type RememberedApprovalDocument,
} from "./schemas.ts";

/** Adds the endpoints with which a person allows or denies calls. @param check throws 404 if there is no such server */
export function addApprovalRoutes(api: Hono, hub: Hub, check: (server: string) => void): void {
  const { approvals } = hub;

  api.get("/approvals", (c) =>
    c.json({
      approvals: approvals.prompts satisfies readonly WithUndefined<ApprovalDocument>[],
    }),
  );

  api.get("/approvals/remembered", async (c) => {
    const remembered: readonly WithUndefined<RememberedApprovalDocument>[] =
      await approvals.remembered();
    return c.json({ remembered });
  });
  api.delete("/approvals/remembered", async (c) => {
    const forgotten = await approvals.forget(undefined);
    return c.json({ forgotten });
  });
  api.delete("/approvals/remembered/:id", async (c) => {
    const { id } = c.req.param();
    const forgotten = await approvals.forget([id]);
    if (forgotten.length === 0) throw notFound(`remembered approval ${id}`);
    return c.json({ forgotten });
  });

  api.post("/approvals/accept", async (c) => {
    const { server } = await readBody(c, acceptToolsSchema);
    check(server);
    await hub.acceptTools(server);
    return c.body(null, 204);
  });

  api.post("/approvals/:id", async (c) => {
    const { id } = c.req.param();
    const { decision, by = "terminal" } = await readBody(c, approvalAnswerSchema);
    switch (approvals.answer(id, decision, by)) {
      case "accepted":
        return c.body(null, 204);
      case "unknown":
        throw notFound(`approval ${id}`);
      case "over":
        throw conflict(
          `Approval ${id} is not needed any more: it is decided, or its call has ended.`,
        );
      case "noChoice":
        throw new HubError("invalidParams", `"${decision}" is not possible for approval ${id}.`);
    }
  });
}

/**
 * Counts the reader of an event stream as a program that shows open approvals to a person, if its query has
 * `watch=approvals`.
 * @returns a function that ends the watch; undefined if the query has no `watch`
 */
export function parseWatch(c: Context, hub: Hub): (() => void) | undefined {
  const watched = c.req.query("watch");
  if (watched === undefined) return undefined;
  if (watched === "approvals") return hub.approvals.watch();
  throw new HubError("invalidParams", "watch must be approvals.");
}
