/**
 * dashboard/page/: the page that runs in the browser; scripts/page.ts bundles it. `connection.ts` talks to the dashboard
 * that serves it, and to nothing else; `state.ts` has the state and the pure function that events go through; `app.tsx`
 * draws the frame, and the other .tsx files one view each. Main type: `DashboardState`. This is its entry.
 */
import { render, useEffect, useState } from "hono/jsx/dom";
import { App, titleOf } from "./app.tsx";
import { HubConnection } from "./connection.ts";
import { onSessionOfOtherTab, openSession } from "./requests.ts";
import { parseRoute } from "./state.ts";

/** Draws the state of the connection again whenever it has changed. */
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
