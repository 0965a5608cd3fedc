import { useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { DirectoryEntry, Offer, TrialDocument } from "./documents.ts";
import { count, parsePairs, splitCommandLine, suggestName } from "./format.ts";
import { Button, Choice, Empty, FindingList, Header, Ready } from "./parts.tsx";
import { routeTo, serversOf } from "./state.ts";

/** A server that is being added: its manifest entry, and the names of the values that the person can set. */
interface Draft {
  readonly name: string;
  /** The server's package, URL or command line, for people. */
  readonly source: string;
  readonly entry: Readonly<Record<string, unknown>>;
  /** The table of the entry into which the values go; `inputs`: the names of the values. */
  readonly table: "env" | "headers";
  readonly inputs: readonly string[];
}

/** The secret in which a value of a server is stored: its name, and the form in which the entry refers to it. */
function secretOf(server: string, input: string): { readonly name: string; readonly form: string } {
  const name = `${server}/${input.replace(/[^\w.-]+/g, "-")}`;
  return { name, form: `\${secret:${name}}` };
}

/**
 * Puts references to secrets into the entry, in place of the values that the person has set.
 * @returns the new entry, and the secrets to store
 */
function completeEntry(
  { name, entry, table, inputs }: Draft,
  values: Readonly<Record<string, string>>,
): {
  readonly entry: Readonly<Record<string, unknown>>;
  readonly secrets: Readonly<Record<string, string>>;
} {
  const given = inputs.filter((input) => (values[input] ?? "") !== "");
  if (given.length === 0) return { entry, secrets: {} };
  const own = (entry[table] ?? {}) as Readonly<Record<string, string>>;
  const references = given.map((input) => [input, secretOf(name, input).form] as const);
  const secrets = given.map((input) => [secretOf(name, input).name, values[input] ?? ""] as const);
  return {
    entry: { ...entry, [table]: { ...own, ...Object.fromEntries(references) } },
    secrets: Object.fromEntries(secrets),
  };
}

function draftOf(listed: DirectoryEntry, offer: Offer): Draft {
  const name = suggestName(listed.name);
  return "package" in offer
    ? {
        name,
        source: offer.package,
        entry: { package: offer.package },
        table: "env",
        inputs: offer.env,
      }
    : {
        name,
        source: offer.url,
        entry: { url: offer.url, ...(offer.transport === "sse" && { transport: "sse" }) },
        table: "headers",
        inputs: offer.headers,
      };
}

export function AddView({ state, actions }: ViewProps) {
  const [way, setWay] = useState<"directory" | "own">("directory");
  const [draft, setDraft] = useState<Draft | undefined>(undefined);
  const [words, setWords] = useState("");
  const choose = (next: Draft | undefined): void => {
    actions.endTrial();
    setDraft(next);
  };
  if (draft !== undefined) {
    return (
      <DraftForm
        key="draft"
        draft={draft}
        trial={state.trial}
        taken={serversOf(state).map(({ name }) => name)}
        actions={actions}
        onBack={() => choose(undefined)}
      />
    );
  }
  const onSearch = (event: Event): void => {
    event.preventDefault();
    if (words.trim() !== "") actions.search(words.trim());
  };
  return (
    <div key="choose">
      <Header title="Add a server" about="Try a server, then write it into the manifest." />
      <div class="tabs" role="group" aria-label="Where the server comes from">
        {(
          [
            ["directory", "Public directories"],
            ["own", "Own command or URL"],
          ] as const
        ).map(([name, text]) => (
          <button
            key={name}
            type="button"
            aria-pressed={way === name ? "true" : "false"}
            onClick={() => setWay(name)}
          >
            {text}
          </button>
        ))}
      </div>
      {way === "own" ? (
        <OwnForm key="own" onDraft={choose} />
      ) : (
        <div key="directory">
          <form class="filters actions" role="search" onSubmit={onSearch}>
            <input
              type="search"
              class="search wide-search"
              aria-label="Search the directories"
              placeholder="github, postgres, browser…"
              value={words}
              onInput={({ target }) => setWords((target as HTMLInputElement).value)}
            />
            <button type="submit" class="primary">
              Search
            </button>
          </form>
          {state.search === undefined ? (
            <Empty key="before" icon="add" title="Search the public directories of MCP servers">
              Your words go to them when you press Search.
            </Empty>
          ) : (
            <Ready
              key="results"
              of={state.search}
              what="the directories"
              icon="add"
              draw={({ servers, failures }) => (
                <div>
                  {failures.map(({ directory, message }) => (
                    <p key={directory} class="about bad">
                      {directory}: {message}
                    </p>
                  ))}
                  {servers.length === 0 && (
                    <Empty key="none" icon="add" title="Nothing was found">
                      Search for other words, or add your own command or URL.
                    </Empty>
                  )}
                  <ul class="plain cards">
                    {servers.map((listed) => (
                      <Listed
                        key={`${listed.directory} ${listed.name} ${listed.version ?? ""}`}
                        listed={listed}
                        onDraft={choose}
                      />
                    ))}
                  </ul>
                </div>
              )}
            />
          )}
        </div>
      )}
    </div>
  );
}

function Listed({
  listed,
  onDraft,
}: {
  readonly listed: DirectoryEntry;
  readonly onDraft: (draft: Draft) => void;
}) {
  const { name, title, description, version, directory, offers, omissions } = listed;
  return (
    <li class="card panel">
      <h2>{title ?? name}</h2>
      <p class="about">
        <span class="mono">{name}</span> {version ?? ""} · {directory}
      </p>
      <p>{description ?? ""}</p>
      {offers.length === 0 && (
        <p key="none" class="about">
          {omissions.join(" ")}
        </p>
      )}
      <ul class="plain flow">
        {offers.map((offer) => {
          const source = "package" in offer ? offer.package : offer.url;
          const inputs = "package" in offer ? offer.env : offer.headers;
          return (
            <li key={source} class="pair">
              <span>
                <span class="mono">{source}</span>{" "}
                <span class="about">
                  {inputs.length === 0 ? "" : `can be given ${inputs.join(", ")}`}
                </span>
              </span>
              <Button
                text="Choose"
                label={`Choose ${source}`}
                onPress={() => onDraft(draftOf(listed, offer))}
              />
            </li>
          );
        })}
      </ul>
    </li>
  );
}

function OwnForm({ onDraft }: { readonly onDraft: (draft: Draft) => void }) {
  const [kind, setKind] = useState<"command" | "url">("command");
  const [line, setLine] = useState("");
  const [pairs, setPairs] = useState("");
  const isCommand = kind === "command";
  const table = isCommand ? "env" : "headers";
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    const [command = "", ...args] = splitCommandLine(line);
    const values = parsePairs(pairs, isCommand ? "=" : ":");
    const what = isCommand ? { command, ...(args.length > 0 && { args }) } : { url: line.trim() };
    if (line.trim() === "") return;
    const words = isCommand
      ? (args.findLast((word) => !word.startsWith("-") && /[a-z]/i.test(word)) ?? command)
      : (new URL(line.trim(), location.href).hostname.split(".").at(-2) ?? "server");
    onDraft({
      name: suggestName(words),
      source: line.trim(),
      entry: { ...what, ...(Object.keys(values).length > 0 && { [table]: values }) },
      table,
      inputs: [],
    });
  };
  return (
    <form class="card panel" onSubmit={onSubmit}>
      <Choice
        label="Kind"
        value={kind}
        options={[
          ["command", "Command"],
          ["url", "URL"],
        ]}
        onChoose={setKind}
      />
      <div class="field">
        <label for="own-line">{isCommand ? "Command line" : "URL"}</label>
        <input
          id="own-line"
          type="text"
          class="mono"
          required
          spellcheck={false}
          autocomplete="off"
          placeholder={
            isCommand ? "npx -y @modelcontextprotocol/server-memory" : "https://example.com/mcp"
          }
          value={line}
          onInput={({ target }) => setLine((target as HTMLInputElement).value)}
        />
        {isCommand && (
          <p key="shell" class="about">
            It is run without a shell: no pipes, no variables.
          </p>
        )}
      </div>
      <div class="field">
        <label for="own-pairs">{isCommand ? "Environment variables" : "Headers"}</label>
        <textarea
          id="own-pairs"
          class="mono"
          rows={3}
          spellcheck={false}
          placeholder={isCommand ? "NAME=${secret:name}" : "Authorization: Bearer ${secret:name}"}
          value={pairs}
          onInput={({ target }) => setPairs((target as HTMLTextAreaElement).value)}
        />
        <p class="about">One on each line.</p>
      </div>
      <p class="actions">
        <button type="submit" class="primary">
          Continue
        </button>
      </p>
    </form>
  );
}

function DraftForm({
  draft,
  trial,
  taken,
  actions,
  onBack,
}: {
  readonly draft: Draft;
  readonly trial: ViewProps["state"]["trial"];
  readonly taken: readonly string[];
  readonly actions: ViewProps["actions"];
  readonly onBack: () => void;
}) {
  const [name, setName] = useState(draft.name);
  const [values, setValues] = useState<Readonly<Record<string, string>>>({});
  const isTaken = taken.includes(name);
  const isRight = /^[a-zA-Z0-9_-]+$/.test(name) && !isTaken;
  const complete = completeEntry({ ...draft, name }, values);
  // A trial stores no secrets, so its entry contains the values themselves.
  const tryIt = (): void => {
    const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
    const table = { ...Object(draft.entry[draft.table]), ...given } as object;
    const entry =
      Object.keys(table).length === 0 ? draft.entry : { ...draft.entry, [draft.table]: table };
    actions.tryServer(name, entry);
  };
  const add = async (): Promise<void> => {
    if (await actions.addServer(name, complete.entry, complete.secrets))
      location.hash = routeTo("servers", name);
  };
  return (
    <div>
      <Header title={`Add the server ${draft.name}`}>
        <Button text="Back" onPress={onBack} />
      </Header>
      <div class="card panel">
        <p>
          {"url" in draft.entry ? "toolmux will connect to " : "toolmux will start "}
          <span class="mono break">{draft.source}</span>
        </p>
        <div class="field">
          <label for="draft-name">Name</label>
          <input
            id="draft-name"
            type="text"
            value={name}
            spellcheck={false}
            autocomplete="off"
            aria-describedby="draft-name-about"
            onInput={({ target }) => setName((target as HTMLInputElement).value)}
          />
          <p id="draft-name-about" class={isRight ? "about" : "about bad"}>
            {isTaken
              ? "There is a server of this name."
              : "Letters, digits, - and _. Names of tools begin with it."}
          </p>
        </div>
        {draft.inputs.map((input) => (
          <div class="field" key={input}>
            <label for={`value-${input}`}>
              <span class="mono">{input}</span>
            </label>
            <input
              id={`value-${input}`}
              type="password"
              autocomplete="off"
              onInput={({ target }) =>
                setValues({ ...values, [input]: (target as HTMLInputElement).value })
              }
            />
          </div>
        ))}
        {draft.inputs.length > 0 && (
          <p key="secrets" class="about">
            Values go into the secret store, and the manifest names them. Leave empty what is not
            needed.
          </p>
        )}
        <details>
          <summary>The entry in the manifest</summary>
          <pre tabindex={0}>{JSON.stringify({ [name]: complete.entry }, null, 2)}</pre>
        </details>
        <div role="status" aria-live="polite">
          {trial !== undefined && (
            <Ready
              key="trial"
              of={trial}
              what="trials"
              icon="add"
              draw={(result) => <Trial trial={result} />}
            />
          )}
        </div>
        <p class="actions">
          <Button
            text={trial?.kind === "loading" ? "Trying…" : "Try it"}
            isDisabled={!isRight || trial?.kind === "loading"}
            onPress={tryIt}
          />
          <Button text="Add it" kind="primary" isDisabled={!isRight} onPress={() => void add()} />
        </p>
      </div>
    </div>
  );
}

function Trial({ trial }: { readonly trial: TrialDocument }) {
  if (trial.state === "connected") {
    return (
      <div>
        <p class="outcome good">
          It works: {[trial.name, trial.version].filter(Boolean).join(" ")} has{" "}
          {count(trial.tools, "tool")}.
        </p>
        {trial.findings.length > 0 && (
          <div key="found" class="banner bad panel">
            <p>Its definitions have suspicious text. Add it only if you find it harmless.</p>
            <FindingList findings={trial.findings} />
          </div>
        )}
      </div>
    );
  }
  if (trial.state === "unauthorized")
    return <p class="outcome">It answers, and wants a login. Add it, then log in.</p>;
  return (
    <div class="banner bad panel">
      <p class="pre">{trial.error.message}</p>
      <ul>
        {trial.remedies.map((remedy) => (
          <li key={remedy}>{remedy}</li>
        ))}
      </ul>
    </div>
  );
}
