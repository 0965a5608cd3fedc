import { ErrorBoundary, useEffect, useRef, useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import { FirstSteps } from "./first-steps.tsx";
import { indicatorOf, toneOfServer } from "./format.ts";
import { hubNames } from "./hub-names.ts";
import { Choice, Dot, Empty, Header, Icon, Ready } from "./parts.tsx";
import { QuestionBanner } from "./question.tsx";
import {
  countQuestions,
  type DashboardState,
  isOffered,
  LOADING,
  questionsOfOthers,
  routeTo,
  serversOf,
  TITLES,
  valueOf,
  type ViewName,
} from "./state.ts";
import { chooseTheme, chosenTheme, type Theme, THEMES } from "./theme.ts";

const GROUPS: readonly (readonly ViewName[])[] = [
  ["overview", "hubs"],
  ["servers", "calls", "approvals", "agents"],
  ["tools", "modes", "clients", "fleet"],
  ["logs", "usage"],
  ["add", "configure", "connect"],
];

/** The title of the page, which begins with the number of waiting approvals. */
export function titleOf(state: DashboardState): string {
  const { route, hub } = state;
  const waiting = countQuestions(state);
  const name = hub === undefined ? "toolmux" : hub.name;
  return `${waiting > 0 ? `(${waiting}) ` : ""}${TITLES[route.view]} · ${name}`;
}

export function App({ state, actions }: ViewProps) {
  const { route, connection, notices, isSearching, searchModule } = state;
  const SearchDialog = isSearching ? valueOf(searchModule) : undefined;
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    main.current?.scrollTo(0, 0);
    const current = document.querySelector("nav [aria-current]");
    current?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [route.view]);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (!isSearchKey(event)) return;
      event.preventDefault();
      actions.setSearching(true);
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  return (
    <div class="page">
      <a class="skip" href="#view-title" onClick={focusTitle}>
        Skip to the content
      </a>
      <TopBar state={state} actions={actions} />
      <Navigation state={state} />
      <main ref={main} data-scroll="main" class={connection.kind === "lost" ? "old" : ""}>
        <ConnectionBanner state={state} />
        <QuestionBanner state={state} actions={actions} />
        {connection.kind === "denied" ? (
          <NoAccess key="denied" text={connection.text} />
        ) : connection.kind === "none" ? (
          <section key="none" class="view" aria-labelledby="view-title">
            <Header title="Overview" />
            <FirstSteps state={state} actions={actions} />
          </section>
        ) : isReadable(state) ? (
          <section key={route.view} class={`view ${route.view}`} aria-labelledby="view-title">
            <ErrorBoundary fallbackRender={describeFault}>
              <OpenedView state={state} actions={actions} />
            </ErrorBoundary>
          </section>
        ) : (
          <p key="nothing" class="view">
            {" "}
          </p>
        )}
      </main>
      {SearchDialog !== undefined && <SearchDialog key="search" state={state} actions={actions} />}
      <div class="notices" role="status" aria-live="polite">
        {notices.map(({ id, text, isError }) => (
          <p key={id} class={isError ? "notice bad" : "notice"}>
            {text}
          </p>
        ))}
      </div>
    </div>
  );
}

/** The view of the route. Its module is loaded when it is first opened. */
function OpenedView({ state, actions }: ViewProps) {
  const module = state.views.get(state.route.view) ?? LOADING;
  const View = valueOf(module);
  // No element stands around a view, because some views are as high as the page.
  return View === undefined ? (
    <Ready of={module} what="this view" icon={state.route.view} draw={() => undefined} />
  ) : (
    <View state={state} actions={actions} />
  );
}

/** Replaces a view that cannot be drawn: a hub of another version may send data that the page does not expect. */
function describeFault(error: Error) {
  return (
    <Empty icon="configure" title="This view cannot be drawn">
      <span id="view-title">
        The page and the hub may be of different versions. ({error.message})
      </span>
    </Empty>
  );
}

/** Whether the page may show data of a hub. The data may be old. */
function isReadable({ hub, connection }: DashboardState): boolean {
  return hub !== undefined && connection.kind !== "denied";
}

function focusTitle(event: Event): void {
  event.preventDefault();
  document.getElementById("view-title")?.focus();
}

/** Whether a key opens the search: ⌘K or Ctrl+K, or `/` where nothing is typed. */
function isSearchKey({
  key,
  ctrlKey,
  metaKey,
  altKey,
  shiftKey,
  repeat,
  isComposing,
  target,
}: KeyboardEvent): boolean {
  if (repeat || isComposing || altKey) return false;
  if (key.toLowerCase() === "k") return (ctrlKey || metaKey) && !shiftKey;
  if (key !== "/" || ctrlKey || metaKey) return false;
  const isTyping =
    target instanceof Element &&
    target.closest("input, textarea, select, [contenteditable]") !== null;
  return !isTyping;
}

/** What is shown if the page has no access: it was opened without a link, or its time is over. */
function NoAccess({ text }: { readonly text: string }) {
  return (
    <section class="view" aria-labelledby="view-title">
      <Empty icon="approvals" title="This page opens with a link">
        <p id="view-title">{text}</p>
        <p>To get a link, run this in a terminal. It opens your browser, too:</p>
        <pre tabindex={0}>toolmux dashboard</pre>
        <p>
          The link works once, within 5 minutes. For a hub with <code>--dashboard</code>, add its
          port: <code>toolmux dashboard --port 8700</code>
        </p>
      </Empty>
    </section>
  );
}

const THEME_NAMES: Readonly<Record<Theme, string>> = {
  system: "as the system",
  light: "light",
  dark: "dark",
};

/** A button that goes through the themes. */
function ThemeButton() {
  const [theme, setTheme] = useState(chosenTheme());
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "system";
  const label = `Colours: ${THEME_NAMES[theme]}. Change to ${THEME_NAMES[next]}`;
  return (
    <button
      type="button"
      class="icon-button"
      aria-label={label}
      title={label}
      onClick={() => {
        chooseTheme(next);
        setTheme(next);
      }}
    >
      <Icon name={theme} />
    </button>
  );
}

/** The value of the choice of a hub that stands for all hubs. */
const ALL_HUBS = "all";

function TopBar({ state, actions }: ViewProps) {
  const { hubs, hubId, hubClients, connection, route } = state;
  const servers = serversOf(state);
  const indicator = indicatorOf(servers);
  const names = hubNames(hubs, hubClients);
  return (
    <header class="top">
      <a class="brand" href={routeTo("overview")}>
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <path d="M4 8h8l4 8 4 8h8M4 24h8l4-8 4-8h8M4 16h24" />
        </svg>
        <span>toolmux</span>
      </a>
      {hubs.length > 1 && (
        <Choice
          key="hubs"
          label="Hub"
          value={route.view === "hubs" ? ALL_HUBS : (hubId ?? "")}
          options={[
            [ALL_HUBS, "All"],
            ...hubs.map(
              ({ id, pid, name }) => [id, withNumber(names.get(id) ?? name, pid)] as const,
            ),
          ]}
          onChoose={(id) => {
            if (id === ALL_HUBS) location.hash = routeTo("hubs");
            else if (route.view === "hubs") actions.openHub(id, "overview");
            else actions.selectHub(id);
          }}
        />
      )}
      <span class="space" />
      <button
        type="button"
        class="search-button"
        aria-label="Search everything"
        aria-keyshortcuts="/ Control+K Meta+K"
        onClick={() => actions.setSearching(true)}
      >
        <Icon name="search" />
        <span>Search</span>
        <kbd>/</kbd>
      </button>
      <ThemeButton />
      <span key="link" class="link" role="status">
        {connection.kind === "live"
          ? "live"
          : connection.kind === "opening"
            ? "opening…"
            : connection.kind === "none"
              ? "no hub"
              : "not connected"}
      </span>
      <a key="indicator" class="indicator" href={routeTo("servers")} title={indicator.title}>
        <Dot tone={indicator.tone} />
        {indicator.text}
        <span class="unseen"> servers connected</span>
      </a>
    </header>
  );
}

/** A hub's name with its process id, which commands take, unless the name has it. */
function withNumber(name: string, pid: number): string {
  return name.endsWith(` ${pid}`) ? name : `${name} · ${pid}`;
}

function Navigation({ state }: { readonly state: DashboardState }) {
  const counts: Partial<Record<ViewName, number>> = {
    servers: serversOf(state).filter((server) => toneOfServer(server) === "bad").length,
    calls: state.calls.size,
    approvals: valueOf(state.approvals)?.length ?? 0,
    hubs: questionsOfOthers(state).reduce((sum, { approvals }) => sum + approvals.length, 0),
  };
  const urgent: Partial<Record<ViewName, string>> = {
    servers: "bad",
    approvals: "busy",
    hubs: "busy",
  };
  return (
    <nav aria-label="Views">
      {GROUPS.map((views, at) => (
        <ul key={at}>
          {views
            .filter((view) => isOffered(view, state))
            .map((view) => {
              const number = counts[view] ?? 0;
              return (
                <li key={view}>
                  <a
                    href={routeTo(view)}
                    title={TITLES[view]}
                    aria-current={state.route.view === view ? "page" : undefined}
                  >
                    <Icon name={view} />
                    <span>{TITLES[view]}</span>
                    <span class={number > 0 ? `count ${urgent[view] ?? ""}` : "count none"}>
                      {number > 0 ? number : ""}
                    </span>
                  </a>
                </li>
              );
            })}
        </ul>
      ))}
    </nav>
  );
}

function ConnectionBanner({ state: { connection } }: { readonly state: DashboardState }) {
  if (connection.kind !== "lost") return <div class="banners" role="status" />;
  return (
    <div class="banners" role="status">
      <div class="banner busy">
        <p>
          <strong>This page is out of date.</strong> {connection.text}
        </p>
      </div>
    </div>
  );
}
