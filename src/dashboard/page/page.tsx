/**
 * dashboard/page/: the page that runs in the browser; scripts/page.ts bundles it, with this file as the entry.
 * `connection.ts` sends requests, only to the dashboard that serves the page; `state.ts` has the state and the pure
 * function that applies events to it; `app.tsx` draws the frame, and the other .tsx files one view each. Main type:
 * `DashboardState`.
 */
import { render, useEffect, useState } from "hono/jsx/dom";
import { App, titleOf } from "./app.tsx";
import { HubConnection } from "./connection.ts";
import { onSessionOfOtherTab, openSession } from "./requests.ts";
import { parseRoute } from "./state.ts";

/** Draws the page again whenever the state in the connection's store has changed. */
function Page({ connection }: { readonly connection: HubConnection }) {
  const { store } = connection;
  const [state, setState] = useState(store.state);
  useEffect(() => {
    store.subscribe(setState);
    setState(store.state);
  }, []);
  const title = titleOf(state);
  if (document.title !== title) document.title = title;
  return <App state={state} actions={connection} />;
}

async function main(): Promise<void> {
  const root = document.getElementById("root");
  if (root === null) return;
  const problem = await openSession();
  const connection = new HubConnection();
  const go = (): void => connection.go(parseRoute(location.hash));
  addEventListener("hashchange", go);
  document.addEventListener("visibilitychange", () => connection.onVisibility());
  addEventListener("online", () => connection.retry());
  onSessionOfOtherTab(() => connection.retry());
  go();
  render(<Page connection={connection} />, root);
  await connection.run(problem);
}

void main();
