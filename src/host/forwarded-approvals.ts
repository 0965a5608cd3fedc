import { randomUUID } from "node:crypto";
import { ownServerName } from "../agent/agent-file-toolbox.ts";
import type { ApprovalClient, Approvals, PendingApproval } from "../approval/approvals.ts";
import type { ApprovalPrompt } from "../base/hub-events.ts";
import type { Hub } from "../hub/hub.ts";

/**
 * Shows the calls of a hub that nobody sees, such as that of the servers of an agent's file, among the calls of another
 * hub that wait for an approval, and gives the decisions back. As long as nobody watches those, nobody watches these.
 * @param client the client of the other hub for which the calls are made
 * @returns a function that ends that
 */
export function forwardApprovals(
  inner: Pick<Hub, "approvals" | "subscribe">,
  outer: Approvals,
  client: string,
): () => void {
  const caller: ApprovalClient = { id: client };
  const owner = { key: `inside ${randomUUID()}`, isUnidentified: false };
  const open = new Map<string, PendingApproval>();
  let stopWatching: (() => void) | undefined;
  const followWatchers = (): void => {
    const isWatched = outer.watcherCount > 0;
    if (isWatched) stopWatching ??= inner.approvals.watch();
    else {
      stopWatching?.();
      stopWatching = undefined;
    }
  };
  const ask = (asking: ApprovalPrompt): void => {
    const { id, askedAt: _, ...prompt } = asking;
    const server = ownServerName(prompt.server);
    const forwardedId = `inside:${randomUUID()}`;
    const subject = {
      server,
      tool: prompt.tool,
      definition: forwardedId,
      key: undefined,
      readOnly: "no",
      isDestructive: false,
    } as const;
    // No call of the outer hub has this number.
    const shown = { ...prompt, call: 0, client, server };
    try {
      const asked = outer.ask({ ...shown, subject, caller, owner, forwardedId }, () => undefined);
      open.set(id, asked);
      void asked.outcome.then((outcome) => {
        open.delete(id);
        if (outcome.kind === "decided") inner.approvals.answer(id, outcome.decision, outcome.by);
      });
    } catch {
      // Too many calls wait already.
      inner.approvals.answer(id, "deny", "rule");
    }
  };
  followWatchers();
  const stopFollowing = outer.onWatchChange(followWatchers);
  const unsubscribe = inner.subscribe(
    (event) => {
      if (event.kind !== "approval") return;
      if (event.change === "asked") {
        const { kind: __, change: ___, ...prompt } = event;
        ask(prompt);
      } else open.get(event.id)?.withdraw(undefined);
    },
    ["approval"],
  );
  return () => {
    unsubscribe();
    stopFollowing();
    stopWatching?.();
    for (const each of open.values()) each.withdraw(undefined);
  };
}
