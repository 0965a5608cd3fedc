/**
 * dashboard/page/: the page that runs in the browser. `page.tsx` is its entry; scripts/page.ts bundles it with page.css
 * and index.html. It talks to the dashboard that serves it, and to nothing else.
 */
import { render, useEffect, useState } from "hono/jsx/dom";
import type { HubEntry } from "../hubs.ts";

const BEARER = "toolmux-bearer";

/** Exchanges the one-time token of the address for a bearer. @returns the bearer that the page has */
async function openSession(): Promise<string> {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null) {
    history.replaceState(null, "", location.pathname);
    const response = await fetch("./api/session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token }),
    });
    const { bearer } = (await response.json()) as { readonly bearer?: string };
    if (bearer !== undefined) localStorage.setItem(BEARER, bearer);
  }
  return localStorage.getItem(BEARER) ?? "";
}

async function listHubs(): Promise<readonly HubEntry[]> {
  const bearer = await openSession();
  const response = await fetch("./api/hubs", { headers: { Authorization: `Bearer ${bearer}` } });
  if (!response.ok) throw new Error(`HTTP status ${response.status}`);
  return ((await response.json()) as { readonly hubs: readonly HubEntry[] }).hubs;
}

function Hubs() {
  const [hubs, setHubs] = useState<readonly HubEntry[]>([]);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    listHubs().then(setHubs, (error: unknown) => setProblem(String(error)));
  }, []);
  return (
    <main>
      <h1>toolmux</h1>
      {problem === "" ? null : <p role="alert">{problem}</p>}
      <ul>
        {hubs.map(({ id, name, pid, manifest }) => (
          <li key={id}>
            {name} {pid} {manifest.join(", ")}
          </li>
        ))}
      </ul>
    </main>
  );
}

const root = document.querySelector("#root");
if (root instanceof HTMLElement) render(<Hubs />, root);
