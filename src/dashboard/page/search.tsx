import { useEffect, useState } from "hono/jsx/dom";
import { nameOfClient } from "../../base/client-name.ts";
import type { ViewProps } from "./actions.ts";
import { matchesWords, statusText } from "./format.ts";
import { Icon, type IconName, useModal } from "./parts.tsx";
import {
  type DashboardState,
  isOffered,
  routeTo,
  serversOf,
  TITLES,
  valueOf,
  VIEWS,
} from "./state.ts";

/** Something that a search finds. */
interface Finding {
  readonly key: string;
  readonly icon: IconName;
  readonly title: string;
  readonly about: string;
  /** The fragment of the URL that shows it. */
  readonly href: string;
  /** Further words by which it is found. */
  readonly words: string;
}

/** Maximum number of findings that are listed. */
const MAX_FINDINGS = 40;

/** Searches views, servers, tools, clients, modes, agents, secrets and calls, and leads to what was found. */
export function Search({ state, actions }: ViewProps) {
  const [words, setWords] = useState("");
  const [chosen, setChosen] = useState(0);
  const close = (): void => actions.setSearching(false);
  const modal = useModal(close);
  const found = findingsFor(words, state);
  const at = Math.min(chosen, Math.max(0, found.length - 1));
  useEffect(() => {
    document.getElementById(`found-${at}`)?.scrollIntoView({ block: "nearest" });
  }, [at, words]);
  const open = (finding: Finding | undefined): void => {
    if (finding === undefined) return;
    close();
    location.hash = finding.href;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    const moves: Readonly<Record<string, number>> = { ArrowDown: at + 1, ArrowUp: at - 1 };
    const to = moves[event.key];
    if (to !== undefined) {
      event.preventDefault();
      setChosen((to + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(found[at]);
    }
  };
  return (
    <dialog {...modal} class="palette" aria-label="Search everything">
      <input
        type="search"
        role="combobox"
        aria-label="Search everything"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={found.length > 0 ? `found-${at}` : undefined}
        placeholder="Search servers, tools, clients, views…"
        autofocus
        spellcheck={false}
        value={words}
        onKeyDown={onKeyDown}
        onInput={({ target }) => {
          setWords((target as HTMLInputElement).value);
          setChosen(0);
        }}
      />
      <ul id="found" role="listbox" aria-label="Findings" tabindex={-1}>
        {found.map((finding, index) => (
          <li
            key={finding.key}
            id={`found-${index}`}
            role="option"
            aria-selected={index === at ? "true" : "false"}
            onClick={() => open(finding)}
          >
            <Icon name={finding.icon} />
            <span class="clip">{finding.title}</span>
            <span class="about clip">{finding.about}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && (
        <p key="none" class="about" role="status">
          Nothing here has these words.
        </p>
      )}
    </dialog>
  );
}

function findingsFor(words: string, state: DashboardState): readonly Finding[] {
  const text = words.trim();
  const found: Finding[] = [];
  for (const finding of allFindings(state)) {
    if (!matchesWords(text, finding.title, finding.about, finding.words)) continue;
    found.push(finding);
  }
  // What has the words in its title is meant more often than what has them elsewhere.
  const isInTitle = ({ title }: Finding): boolean => matchesWords(text, title);
  const ranked = text === "" ? found : found.toSorted((a, b) => +isInTitle(b) - +isInTitle(a));
  const shown = ranked.slice(0, MAX_FINDINGS);
  if (text === "") return shown;
  const inLog = { icon: "logs", about: "", words: "" } as const;
  return [
    ...shown,
    {
      ...inLog,
      key: "log",
      title: `Lines of all logs with “${text}”`,
      href: routeTo("logs", `?${text}`),
    },
  ];
}

/** All that can be found, views first. */
function* allFindings(state: DashboardState): Generator<Finding> {
  for (const view of VIEWS) {
    if (!isOffered(view, state)) continue;
    const about = "View";
    yield {
      key: `view ${view}`,
      icon: view,
      title: TITLES[view],
      about,
      href: routeTo(view),
      words: view,
    };
  }
  for (const server of serversOf(state)) {
    const { name, title, endpoint = "", description = "" } = server;
    yield {
      key: `server ${name}`,
      icon: "servers",
      title: title ?? name,
      about: `Server · ${statusText(server, state.now)}`,
      href: routeTo("servers", name),
      words: `${name} ${endpoint} ${description}`,
    };
  }
  for (const { name, server, description = "" } of valueOf(state.tools)?.tools ?? []) {
    const about = `Tool of ${server}`;
    const href = routeTo("tools", name);
    yield { key: `tool ${name}`, icon: "tools", title: name, about, href, words: description };
  }
  for (const client of state.clients) {
    yield {
      key: `client ${client.id}`,
      icon: "clients",
      title: nameOfClient(client),
      about: `Client · ${client.id}`,
      href: routeTo("clients"),
      words: client.version ?? "",
    };
  }
  for (const { name, title } of valueOf(state.modes)?.modes ?? []) {
    const href = routeTo("modes");
    yield { key: `mode ${name}`, icon: "modes", title, about: `Mode · ${name}`, href, words: "" };
  }
  for (const { name, description = "" } of valueOf(state.agents) ?? []) {
    const href = routeTo("agents", name);
    yield {
      key: `agent ${name}`,
      icon: "agents",
      title: name,
      about: "Agent",
      href,
      words: description,
    };
  }
  for (const { name } of valueOf(state.secrets)?.secrets ?? []) {
    const href = routeTo("configure");
    yield {
      key: `secret ${name}`,
      icon: "configure",
      title: name,
      about: "Secret",
      href,
      words: "",
    };
  }
  for (const { call, server, tool, name } of [
    ...state.calls.values(),
    ...state.ended.slice(0, 100),
  ]) {
    const isRunning = state.calls.has(call);
    yield {
      key: `call ${call}`,
      icon: "calls",
      title: `${server} · ${tool}`,
      about: isRunning ? `Call ${call}, runs now` : `Call ${call}`,
      href: routeTo("calls"),
      words: name,
    };
  }
}
