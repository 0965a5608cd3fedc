/**
 * dashboard/page/: the page that runs in the browser; scripts/page.ts bundles it, with this file as the entry.
 * `stream.ts` follows the events of a hub, `store.ts` keeps the state, `apply-events.ts` is the pure function by which
 * events change it. `reads.ts` reads data of the hub, `actions.ts` does what the views ask for; requests go only to the
 * dashboard that serves the page. `app.tsx` draws the frame, and the other .tsx files one view each. Main type:
 * `DashboardState` (`state.ts`). Start here, then read `stream.ts` and `store.ts`.
 */
import { render, useEffect, useState } from "hono/jsx/dom";
import { App, titleOf } from "./app.tsx";
import { HubActions } from "./actions.ts";
import { HubReads } from "./reads.ts";
import { onSessionOfOtherTab, openSession } from "./requests.ts";
import { parseRoute } from "./state.ts";
import { followTheme } from "./theme.ts";
import type { Store } from "./store.ts";
import { HubStream } from "./stream.ts";

/** Draws the page again whenever the state in the store has changed. */
function Page({ store, actions }: { readonly store: Store; readonly actions: HubActions }) {
  const [state, setState] = useState(store.state);
  useEffect(() => {
    store.subscribe(setState);
    setState(store.state);
  }, []);
  const title = titleOf(state);
  if (document.title !== title) document.title = title;
  return <App state={state} actions={actions} />;
}

async function main(): Promise<void> {
  const root = document.getElementById("root");
  if (root === null) return;
  followTheme();
  const problem = await openSession();
  const reads = new HubReads();
  const stream = new HubStream(reads);
  const actions = new HubActions(reads, stream);
  const go = (): void => actions.go(parseRoute(location.hash));
  addEventListener("hashchange", go);
  document.addEventListener("visibilitychange", () => stream.onVisibility());
  addEventListener("online", () => stream.retry());
  onSessionOfOtherTab(() => stream.retry());
  go();
  render(<Page store={reads.store} actions={actions} />, root);
  if (problem !== undefined) actions.notify(problem, true);
  await stream.run(problem);
}

void main();
