import { type Child, useState } from "hono/jsx/dom";
import { matchesWords } from "./format.ts";
import { Choice, Empty, type IconName, type Key, Rows, SearchField } from "./parts.tsx";

/** A choice above a list. `""` stands for all items. */
export interface ListFilter<T> {
  readonly label: string;
  readonly options: readonly (readonly [value: string, text: string])[];
  /** The value that is chosen at first; default `""`. */
  readonly initial?: string;
  /** Whether an item is shown when a value other than `""` is chosen. */
  matches(item: T, value: string): boolean;
}

/** The title and the text of a list without items, and a link to what helps. */
type Note = readonly [title: string, text: string, link?: readonly [href: string, text: string]];

export interface FilteredListProps<T> {
  readonly items: readonly T[];
  readonly label: string;
  readonly icon: IconName;
  /** Height of a row, in CSS pixels. */
  readonly height: number;
  readonly keyOf: (item: T) => Key;
  /** Draws an item as a row; without it, `list` draws all. */
  readonly draw?: (item: T) => Child;
  /** Draws the items that the filters leave, in place of rows. */
  readonly list?: (shown: readonly T[]) => Child;
  /** The texts of an item in which its words are searched. */
  readonly search: {
    readonly label: string;
    /** The words that are in the search field at first. */
    readonly initial?: string;
    of(item: T): readonly (string | undefined)[];
    /** Called with the words in the search field when they have changed. */
    readonly onWords?: (words: string) => void;
    /** The keys of items that a search for these words has found, the best first; they come before all others. */
    readonly found?: (words: string) => readonly Key[];
  };
  readonly filters?: readonly ListFilter<T>[];
  readonly empty: Note;
  readonly noMatch: Note;
  /** Further controls beside the filters. @param shown the items that the filters leave */
  readonly controls?: (shown: readonly T[]) => Child;
  /** Puts the list into a part of the page; by default it is a card. @param shown as for `controls` */
  readonly frame?: (list: Child, shown: readonly T[]) => Child;
}

/** A long list with a search field and filters above it. */
export function FilteredList<T>(props: FilteredListProps<T>) {
  const { items, label, icon, search, filters = [], frame, controls } = props;
  const [words, setWords] = useState(search.initial ?? "");
  const [chosen, setChosen] = useState<Readonly<Record<string, string>>>({});
  const valueOf = ({ label: name, initial = "" }: ListFilter<T>): string => chosen[name] ?? initial;
  const active = filters.filter((filter) => valueOf(filter) !== "");
  const hasWords = words.trim() !== "";
  const found = (hasWords && search.found?.(words)) || [];
  const ranks = new Map(found.map((key, at) => [key, at]));
  const rankOf = (item: T): number => ranks.get(props.keyOf(item)) ?? Infinity;
  const shown =
    active.length === 0 && !hasWords
      ? items
      : items
          .filter(
            (item) =>
              active.every((filter) => filter.matches(item, valueOf(filter))) &&
              (!hasWords || rankOf(item) < Infinity || matchesWords(words, ...search.of(item))),
          )
          .toSorted((a, b) => (rankOf(a) < rankOf(b) ? -1 : Number(rankOf(a) > rankOf(b))));
  const [title, text, link] = items.length === 0 ? props.empty : props.noMatch;
  const list =
    shown.length === 0 ? (
      <Empty key="none" icon={icon} title={title}>
        <p>{text}</p>
        {link !== undefined && (
          <p key="link" class="actions">
            <a class="button" href={link[0]}>
              {link[1]}
            </a>
          </p>
        )}
      </Empty>
    ) : props.list !== undefined ? (
      props.list(shown)
    ) : (
      <Rows
        key="rows"
        items={shown}
        height={props.height}
        label={label}
        class={frame === undefined ? "card" : ""}
        keyOf={props.keyOf}
        draw={props.draw ?? (() => "")}
      />
    );
  return (
    <div>
      <div class="filters actions" role="search" aria-label={`Filter: ${label}`}>
        <SearchField
          label={search.label}
          value={words}
          onInput={(value) => {
            setWords(value);
            search.onWords?.(value);
          }}
        />
        {filters.map((filter) => (
          <Choice
            key={filter.label}
            label={filter.label}
            value={valueOf(filter)}
            options={filter.options}
            onChoose={(value) => setChosen((before) => ({ ...before, [filter.label]: value }))}
          />
        ))}
        {controls?.(shown)}
      </div>
      {frame === undefined ? list : frame(list, shown)}
    </div>
  );
}

/** The options of a filter by name: all, then each of the names. */
export function nameOptions(
  names: Iterable<string>,
): readonly (readonly [value: string, text: string])[] {
  const known = [...new Set(names)].filter((name) => name !== "").toSorted();
  return [["", "all"], ...known.map((name) => [name, name] as const)];
}
