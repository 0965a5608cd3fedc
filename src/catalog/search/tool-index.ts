/**
 * catalog/search/: which tools of a catalog match a query best, and which tool a name stands for. Pure: no I/O, no
 * timers. `words.ts` makes texts comparable, `word-classes.ts` has words of one meaning, `signature.ts` what a search
 * shows of a tool. Main types: `ToolIndex`, below; `ToolNames` (`tool-names.ts`). Start here with `ToolIndex.search`.
 *
 * `ToolIndex` is a search index of the tools that clients see: BM25F over the words of names, descriptions, servers and
 * arguments, with classes of words of one meaning, and likeness for typing errors.
 */

import { Buffer } from "node:buffer";
import { isJsonObject, JsonObject, parseRange, propertyOf } from "../../base/json.ts";
import type { ListedItem } from "../listing.ts";
import type { Section, SectionEntry } from "../section.ts";
import { splitSentence } from "./signature.ts";
import { plainName, ToolNames } from "./tool-names.ts";
import { WORD_CLASSES } from "./word-classes.ts";
import { isOneEdit, likeness, squash, stemOf, trigramsOf, wordsOf } from "./words.ts";

/** The parts of a tool that are searched, with the weight and the length normalization of BM25F. */
const FIELDS = [
  { name: "name", weight: 2.5, norm: 0.3 },
  { name: "first sentence", weight: 0.9, norm: 0.5 },
  { name: "description", weight: 1, norm: 0.7 },
  { name: "server", weight: 0.6, norm: 0.3 },
  { name: "argument names", weight: 1, norm: 0.9 },
  { name: "argument descriptions", weight: 0.4, norm: 0.7 },
  { name: "enums", weight: 0.2, norm: 0.7 },
] as const;
/** Indices of fields; the descriptions and enums of arguments follow their names. */
const [NAME, SENTENCE, DESCRIPTION, SERVER, ARGUMENTS] = [0, 1, 2, 3, 4] as const;
const FIELD_COUNT = FIELDS.length;

/** The part of the weight that a word of the same class has. */
const CLASS_WEIGHT = 0.4;
/** The part of the weight that a similar word has, times its likeness. */
const SIMILAR_WEIGHT = 0.6;
const MIN_LIKENESS = 0.5;
const MIN_NAME_LIKENESS = 0.6;
/** Number of similar words that stand for a word that no tool has. */
const MAX_SIMILAR = 3;
/** Saturation of the frequency of a word (BM25's k1). */
const SATURATION = 1.2;
/** Number of the best tools whose order the share of their names that was asked for changes. */
const RERANKED = 100;
const NAME_SHARE_WEIGHT = 0.1;
/** Added for a word of the query that is a tool's name. */
const NAMED_BONUS = 100;
/** Added if the whole query is a tool's name, apart from case and separators. */
const WHOLE_NAME_BONUS = 1000;
/** Added for a name that is like the query, times the likeness. */
const LIKE_NAME_BONUS = 10;

const MAX_QUERY_WORDS = 64;
const MAX_DESCRIPTION = { words: 200, length: 6000 };
const MAX_ARGUMENT_WORDS = 200;
const MAX_ENUM_WORDS = 60;
const MAX_SCHEMA_DEPTH = 5;
const MAX_SCHEMA_NODES = 2000;
/** Size of a tool in bytes from which its arguments are not read. */
const MAX_PARSED = 256 * 1024;
/** Time of one slice of work, in ms; a slice ends with the tool that is being read, so it may last a little longer. */
const SLICE_MS = 3;
const DEFAULT_LIMIT = 8;

export interface ToolIndexOptions {
  /** Lists of words that mean the same, besides the built-in ones. */
  readonly synonyms?: readonly (readonly string[])[] | undefined;
  /** A monotonic clock in ms. */
  readonly now?: (() => number) | undefined;
}

export interface SearchOptions {
  /** Maximum number of hits; by default 8. */
  readonly limit?: number | undefined;
  /** The name of a server, to which the hits are limited. Scores do not depend on it. */
  readonly server?: string | undefined;
  /**
   * The tools that the client sees: a section of the same catalog that may have fewer entries. Only they are found, and
   * only they count for scores, numbers and similar words. By default all tools of the index.
   */
  readonly visible?: Section | undefined;
  /** Whether hits have `words`. */
  readonly explain?: boolean | undefined;
}

/** A word of a tool that counted for its score. */
export interface MatchedWord {
  /** The stem of the query's word; the query itself if it is a name, or like one. */
  readonly asked: string;
  /** The stem in the tool: the same, one of the same class, or a similar one. The exposed name for a name. */
  readonly word: string;
  readonly as: "same" | "class" | "similar" | "name";
  readonly score: number;
}

export interface SearchHit {
  /** The tool, as the client sees it. */
  readonly entry: SectionEntry;
  readonly score: number;
  /** The words by which it was found, the most important first; only with `explain`. */
  readonly words?: readonly MatchedWord[];
}

export interface SearchResult {
  /** The best tools, the best first. Equal scores are in the order of the exposed names. */
  readonly hits: readonly SearchHit[];
  /** The number of tools that match at all. */
  readonly matches: number;
  /** The number of tools that could be found: those that the client sees, of the server if one is named. */
  readonly available: number;
  /** False while some of the tools that the client sees are not indexed yet. */
  readonly isComplete: boolean;
}

/** A word, and where it is. */
interface Term {
  readonly word: string;
  /** `tool << 7 | field << 4 | count` for each tool and field; those of a tool are neighbours, in the order of fields. */
  readonly entries: number[];
  /** Number of distinct trigrams of the word. */
  readonly trigrams: number;
}

const FIELD_BITS = 3;
const COUNT_BITS = 4;
const TOOL_SHIFT = FIELD_BITS + COUNT_BITS;
const MAX_COUNT = (1 << COUNT_BITS) - 1;

interface IndexedTool {
  entry: SectionEntry;
  readonly nameTerms: readonly Term[];
  /** The last pass over the section that had the tool. */
  pass: number;
}

/** The part of the index that a section shows, for one state of the index. */
interface View {
  readonly state: number;
  readonly section: Section;
  /** By slot: 1 for each tool that is shown. */
  readonly isShown: Uint8Array;
  /** Number of tools that are shown and indexed. */
  readonly count: number;
  /** Mean length of each field over these tools. */
  readonly means: Float64Array;
  /** Number of tools of the section, by server. */
  readonly servers: ReadonlyMap<string, number>;
  /** Number of shown tools that have a word. */
  readonly frequencies: Map<Term, number>;
}

/** A word that counts for a word of the query. */
interface Candidate {
  readonly term: Term;
  /** The weight, times the inverse document frequency of the word. */
  readonly weight: number;
  readonly as: MatchedWord["as"];
}

/** A word of the query, with the words that count for it; a tool gets the best of them, not their sum. */
interface Group {
  readonly asked: string;
  /** Grows with the number of times that the word is in the query. */
  readonly factor: number;
  readonly candidates: readonly Candidate[];
}

interface NamedTool {
  readonly slot: number;
  readonly bonus: number;
}

/** The words of one tool: how often each field has them, and the number of words of each field. */
interface ToolWords {
  /** For each word `COUNT_BITS` bits for each field, the first one lowest. */
  readonly counts: ReadonlyMap<string, number>;
  readonly lengths: Uint16Array;
}

export class ToolIndex {
  readonly #now: () => number;
  readonly #classes: ReadonlyMap<string, readonly string[]>;
  readonly #terms = new Map<string, Term>();
  readonly #termsByTrigram = new Map<string, Term[]>();
  /** By slot. The slot of a removed tool is used again when its entries are removed from all terms. */
  readonly #tools: (IndexedTool | undefined)[] = [];
  readonly #slots = new Map<string, number>();
  /** The number of words of each field of each tool. */
  #lengths = new Uint16Array(64 * FIELD_COUNT);
  readonly #freeSlots: number[] = [];
  /** The slots of removed tools whose entries are still in the terms. */
  #staleSlots: number[] = [];
  #section: Section | undefined;
  /** Incremented with every change, so that views of older states are not used. */
  #state = 0;
  #pass = 0;
  #pending: Iterator<void, void> | undefined;
  #running: Promise<void> | undefined;
  readonly #views = new WeakMap<Section, View>();
  #scores = new Float64Array(64);
  #best = new Float64Array(64);

  constructor({ synonyms = [], now = () => performance.now() }: ToolIndexOptions = {}) {
    this.#now = now;
    this.#classes = classesOf(synonyms);
  }

  /** The number of tools that are indexed. */
  get size(): number {
    return this.#slots.size;
  }

  /** The number of different words of all tools. */
  get wordCount(): number {
    return this.#terms.size;
  }

  /** Whether all tools of the last `update` are indexed. */
  get isComplete(): boolean {
    return this.#pending === undefined;
  }

  /**
   * Sets the tools that are to be indexed. The work is done by `work` or `complete`. Tools that have not changed are not
   * read again.
   */
  update(section: Section): void {
    if (section === this.#section) return;
    this.#section = section;
    this.#pending = this.#indexAll(section);
  }

  /** Indexes for about that time, in ms; 3 by default. @returns whether all is indexed */
  work(ms = SLICE_MS): boolean {
    const end = this.#now() + ms;
    while (this.#pending !== undefined) {
      if (this.#pending.next().done === true) this.#pending = undefined;
      else if (this.#now() >= end) return false;
    }
    return true;
  }

  /**
   * Indexes all that there is, in slices of at most 5 ms. Callers at the same time share the work.
   * @param pause lets other work of the process go on
   */
  complete(pause: () => Promise<void>): Promise<void> {
    this.#running ??= this.#completeAll(pause).finally(() => (this.#running = undefined));
    return this.#running;
  }

  /**
   * The tools that match a query best. A query that is a tool's name, apart from case and separators, finds that tool
   * first. Tools that are not indexed yet are not found.
   */
  search(query: string, options: SearchOptions = {}): SearchResult {
    const { limit = DEFAULT_LIMIT, server, visible = this.#section, explain = false } = options;
    if (visible === undefined) return { hits: [], matches: 0, available: 0, isComplete: true };
    const view = this.#viewOf(visible);
    const groups = this.#groupsOf(query, view);
    const named = this.#namedBy(query, groups, view);
    const matching = this.#score(groups, named, view, server);
    const best = this.#bestOf(matching.slots, groups, view);
    for (const slot of matching.touched) this.#scores[slot] = 0;
    const hits = best.slice(0, limit).map(({ slot, entry, score }) => {
      return explain
        ? { entry, score, words: this.#explain(slot, entry, groups, named, view) }
        : { entry, score };
    });
    return {
      hits,
      matches: matching.slots.length,
      available: server === undefined ? visible.size : (view.servers.get(server) ?? 0),
      isComplete: this.isComplete && view.count === visible.size,
    };
  }

  /** Prepares what a search of these tools needs, in steps of well below a millisecond; yields at least once. */
  *prepare(visible: Section): Generator<void, void> {
    yield;
    yield* ToolNames.of(visible).prepare();
  }

  async #completeAll(pause: () => Promise<void>): Promise<void> {
    while (!this.work()) await pause();
  }

  *#indexAll(section: Section): Generator<void, void> {
    const pass = ++this.#pass;
    // A search of an index that is not complete needs the names, too.
    yield* ToolNames.of(section).prepare();
    for (const entry of section.entries) {
      const slot = this.#slots.get(entry.name);
      const known = slot === undefined ? undefined : this.#tools[slot];
      if (known !== undefined && isSameTool(known.entry, entry)) {
        // Only the object may be another one; its words are the same.
        if (known.entry !== entry) {
          known.entry = entry;
          this.#state++;
        }
        known.pass = pass;
      } else {
        if (slot !== undefined) this.#remove(slot);
        this.#add(entry, pass);
      }
      yield;
    }
    for (const [slot, tool] of this.#tools.entries()) {
      if (tool !== undefined && tool.pass !== pass) this.#remove(slot);
      if (slot % 64 === 0) yield;
    }
    if (this.#staleSlots.length > MIN_STALE && this.#staleSlots.length * 4 > this.size) {
      yield* this.#purge();
    }
    // The first search would have to wait for it.
    this.#viewOf(section);
  }

  #add(entry: SectionEntry, pass: number): void {
    this.#state++;
    const slot = this.#freeSlots.pop() ?? this.#tools.length;
    const { counts, lengths } = readWords(entry);
    const nameTerms: Term[] = [];
    for (const [word, fields] of counts) {
      const term = this.#termOf(word);
      if ((fields & MAX_COUNT) !== 0) nameTerms.push(term);
      for (let field = 0; field < FIELD_COUNT; field++) {
        const count = (fields >>> (field * COUNT_BITS)) & MAX_COUNT;
        if (count !== 0) term.entries.push((slot << TOOL_SHIFT) | (field << COUNT_BITS) | count);
      }
    }
    if (this.#lengths.length < (slot + 1) * FIELD_COUNT) {
      const grown = new Uint16Array(this.#lengths.length * 2);
      grown.set(this.#lengths);
      this.#lengths = grown;
    }
    this.#lengths.set(lengths, slot * FIELD_COUNT);
    this.#tools[slot] = { entry, nameTerms, pass };
    this.#slots.set(entry.name, slot);
  }

  #remove(slot: number): void {
    const tool = this.#tools[slot];
    if (tool === undefined) return;
    this.#state++;
    this.#tools[slot] = undefined;
    this.#slots.delete(tool.entry.name);
    this.#staleSlots.push(slot);
  }

  /** Removes the entries of removed tools from all words, and the words that no tool has any more. */
  *#purge(): Generator<void, void> {
    const stale = new Set(this.#staleSlots);
    for (const term of this.#terms.values()) {
      let kept = 0;
      for (let i = 0; i < term.entries.length; i++) {
        const entry = term.entries[i] ?? 0;
        if (!stale.has(entry >>> TOOL_SHIFT)) term.entries[kept++] = entry;
      }
      if (kept !== term.entries.length) {
        term.entries.length = kept;
        this.#state++;
        if (kept === 0) this.#forget(term);
      }
      yield;
    }
    this.#staleSlots = this.#staleSlots.filter((slot) => !stale.has(slot));
    for (const slot of stale) this.#freeSlots.push(slot);
  }

  #termOf(word: string): Term {
    const known = this.#terms.get(word);
    if (known !== undefined) return known;
    const trigrams = isComparable(word) ? trigramsOf(word) : NO_TRIGRAMS;
    const term: Term = { word, entries: [], trigrams: trigrams.size };
    this.#terms.set(word, term);
    for (const trigram of trigrams) {
      const terms = this.#termsByTrigram.get(trigram);
      if (terms === undefined) this.#termsByTrigram.set(trigram, [term]);
      else terms.push(term);
    }
    return term;
  }

  #forget(term: Term): void {
    this.#terms.delete(term.word);
    if (term.trigrams === 0) return;
    for (const trigram of trigramsOf(term.word)) {
      const terms = this.#termsByTrigram.get(trigram);
      if (terms === undefined) continue;
      const last = terms.pop();
      if (last === undefined) continue;
      if (last !== term) terms[terms.indexOf(term)] = last;
      if (terms.length === 0) this.#termsByTrigram.delete(trigram);
    }
  }

  #viewOf(section: Section): View {
    const known = this.#views.get(section);
    if (known?.state === this.#state) return known;
    const isShown = new Uint8Array(this.#tools.length);
    const means = new Float64Array(FIELD_COUNT);
    const servers = new Map<string, number>();
    let count = 0;
    for (const entry of section.entries) {
      servers.set(entry.server, (servers.get(entry.server) ?? 0) + 1);
      const slot = this.#slots.get(entry.name);
      const tool = slot === undefined ? undefined : this.#tools[slot];
      if (slot === undefined || tool === undefined || !isSameTool(tool.entry, entry)) continue;
      isShown[slot] = 1;
      count++;
      for (let field = 0; field < FIELD_COUNT; field++) {
        means[field] = (means[field] ?? 0) + (this.#lengths[slot * FIELD_COUNT + field] ?? 0);
      }
    }
    for (let field = 0; field < FIELD_COUNT; field++) {
      means[field] = Math.max((means[field] ?? 0) / Math.max(count, 1), 1e-9);
    }
    const frequencies = new Map<Term, number>();
    const view = { state: this.#state, section, isShown, count, means, servers, frequencies };
    this.#views.set(section, view);
    return view;
  }

  /** The number of shown tools that have a word. */
  #frequencyOf(term: Term, { frequencies, isShown }: View): number {
    const known = frequencies.get(term);
    if (known !== undefined) return known;
    let count = 0;
    let last = -1;
    for (let i = 0; i < term.entries.length; i++) {
      const slot = (term.entries[i] ?? 0) >>> TOOL_SHIFT;
      if (slot !== last && isShown[slot] === 1) count++;
      last = slot;
    }
    frequencies.set(term, count);
    return count;
  }

  #inverseFrequencyOf(term: Term, view: View): number {
    const frequency = this.#frequencyOf(term, view);
    return Math.log(1 + (view.count - frequency + 0.5) / (frequency + 0.5));
  }

  #groupsOf(query: string, view: View): readonly Group[] {
    const counts = new Map<string, number>();
    for (const word of wordsOf(query, { words: MAX_QUERY_WORDS })) {
      counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    return Array.from(counts, ([asked, count]) => {
      const candidates: Candidate[] = [];
      const add = (term: Term | undefined, weight: number, as: Candidate["as"]): boolean => {
        if (term === undefined || this.#frequencyOf(term, view) === 0) return false;
        candidates.push({ term, weight: weight * this.#inverseFrequencyOf(term, view), as });
        return true;
      };
      const isKnown = add(this.#terms.get(asked), 1, "same");
      for (const word of this.#classes.get(asked) ?? []) {
        add(this.#terms.get(word), CLASS_WEIGHT, "class");
      }
      if (!isKnown) {
        for (const { term, likeness: value } of this.#termsLike(asked, view)) {
          add(term, SIMILAR_WEIGHT * value, "similar");
        }
      }
      return { asked, factor: 1 + Math.log(count), candidates };
    });
  }

  /** The words of shown tools that are most like a word, the most similar first. */
  #termsLike(
    word: string,
    view: View,
  ): readonly { readonly term: Term; readonly likeness: number }[] {
    if (!isComparable(word)) return [];
    const trigrams = trigramsOf(word);
    const shared = new Map<Term, number>();
    for (const trigram of trigrams) {
      for (const term of this.#termsByTrigram.get(trigram) ?? []) {
        shared.set(term, (shared.get(term) ?? 0) + 1);
      }
    }
    const similar: { term: Term; likeness: number }[] = [];
    for (const [term, count] of shared) {
      const isEdit = isOneEdit(word, term.word);
      const value = isEdit
        ? likeness(word, term.word)
        : (2 * count) / (trigrams.size + term.trigrams);
      if (value >= MIN_LIKENESS && this.#frequencyOf(term, view) > 0)
        similar.push({ term, likeness: value });
    }
    similar.sort((a, b) => b.likeness - a.likeness || (a.term.word < b.term.word ? -1 : 1));
    return similar.slice(0, MAX_SIMILAR);
  }

  /** The tools that the query, or a word of it, names. */
  #namedBy(query: string, groups: readonly Group[], view: View): readonly NamedTool[] {
    const names = ToolNames.of(view.section);
    const named = new Map<number, number>();
    const add = (entry: SectionEntry, bonus: number): void => {
      const slot = this.#slots.get(entry.name);
      if (slot === undefined || view.isShown[slot] !== 1) return;
      named.set(slot, Math.max(named.get(slot) ?? 0, bonus));
    };
    const plain = plainName(query);
    const exact = names.exact(plain);
    if (exact !== undefined) add(exact, 5 * WHOLE_NAME_BONUS);
    for (const entry of view.section.remoteEntries(plain)) add(entry, 4 * WHOLE_NAME_BONUS);
    for (const [i, entries] of names.named(squash(plain)).entries()) {
      for (const entry of entries) add(entry, (i === 0 ? 3 : 2) * WHOLE_NAME_BONUS);
    }
    const words = plain.split(/\s+/, MAX_QUERY_WORDS);
    for (const word of words) {
      const name = word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "");
      if (!NAME_LIKE.test(name)) continue;
      for (const entries of names.named(squash(name))) {
        for (const entry of entries) add(entry, NAMED_BONUS);
      }
    }
    // A single word that no tool has, or that is written as names are, may be a name with a typing error.
    const isOdd =
      NAME_LIKE.test(plain) ||
      groups.some(({ candidates }) => !candidates.some(({ as }) => as === "same"));
    if (named.size === 0 && words.length === 1 && isOdd) {
      for (const { entry, likeness: value } of names.like(plain, MIN_NAME_LIKENESS)) {
        add(entry, LIKE_NAME_BONUS * value);
      }
    }
    return Array.from(named, ([slot, bonus]) => ({ slot, bonus }));
  }

  /**
   * Adds up the scores of all tools in `#scores`.
   * @returns the slots that have a score, and of these the ones of the server
   */
  #score(
    groups: readonly Group[],
    named: readonly NamedTool[],
    view: View,
    server: string | undefined,
  ): { readonly touched: readonly number[]; readonly slots: readonly number[] } {
    if (this.#scores.length < this.#tools.length) {
      this.#scores = new Float64Array(this.#tools.length * 2);
      this.#best = new Float64Array(this.#tools.length * 2);
    }
    const [scores, best] = [this.#scores, this.#best];
    const touched: number[] = [];
    const ofGroup: number[] = [];
    for (const { factor, candidates } of groups) {
      ofGroup.length = 0;
      for (const { term, weight } of candidates) this.#scoreTerm(term, weight, view, ofGroup);
      for (const slot of ofGroup) {
        if (scores[slot] === 0) touched.push(slot);
        scores[slot] = (scores[slot] ?? 0) + factor * (best[slot] ?? 0);
        best[slot] = 0;
      }
    }
    for (const { slot, bonus } of named) {
      if (scores[slot] === 0) touched.push(slot);
      scores[slot] = (scores[slot] ?? 0) + bonus;
    }
    const slots =
      server === undefined
        ? touched
        : touched.filter((slot) => this.#tools[slot]?.entry.server === server);
    return { touched, slots };
  }

  /** Raises `#best` of each shown tool that has the word to the word's score; adds the tools that had none to `slots`. */
  #scoreTerm({ entries }: Term, weight: number, { isShown, means }: View, slots: number[]): void {
    const best = this.#best;
    const lengths = this.#lengths;
    const { length } = entries;
    let i = 0;
    while (i < length) {
      const slot = (entries[i] ?? 0) >>> TOOL_SHIFT;
      let frequency = 0;
      for (; i < length && (entries[i] ?? 0) >>> TOOL_SHIFT === slot; i++) {
        const entry = entries[i] ?? 0;
        const field = (entry >>> COUNT_BITS) & FIELD_MASK;
        const norm = NORMS[field] ?? 0;
        const relative = (lengths[slot * FIELD_COUNT + field] ?? 0) / (means[field] ?? 1);
        frequency += ((WEIGHTS[field] ?? 0) * (entry & MAX_COUNT)) / (1 - norm + norm * relative);
      }
      if (isShown[slot] !== 1) continue;
      const score = (weight * frequency) / (SATURATION + frequency);
      const before = best[slot] ?? 0;
      if (score <= before) continue;
      if (before === 0) slots.push(slot);
      best[slot] = score;
    }
  }

  /** The best tools in order; those whose names were asked for are moved up. */
  #bestOf(slots: readonly number[], groups: readonly Group[], view: View): readonly Scored[] {
    const best: Scored[] = [];
    let least = 0;
    let lastName = "";
    for (const slot of slots) {
      const score = this.#scores[slot] ?? 0;
      if (best.length === RERANKED && score < least) continue;
      const name = this.#tools[slot]?.entry.name ?? "";
      if (best.length === RERANKED && score === least && name > lastName) continue;
      const entry = view.section.entry(name);
      if (entry === undefined) continue;
      insert(best, { slot, entry, score });
      if (best.length > RERANKED) best.pop();
      const last = best.at(-1);
      least = last?.score ?? 0;
      lastName = last?.entry.name ?? "";
    }
    const asked = new Set(groups.flatMap(({ candidates }) => candidates.map(({ term }) => term)));
    const reranked: Scored[] = [];
    for (const { slot, entry, score } of best) {
      const share = this.#nameShareOf(slot, asked, view);
      insert(reranked, { slot, entry, score: score * (1 + NAME_SHARE_WEIGHT * share) });
    }
    return reranked;
  }

  /** The share of the words of a tool's name that count for a word of the query, weighted by their inverse frequency. */
  #nameShareOf(slot: number, asked: ReadonlySet<Term>, view: View): number {
    let all = 0;
    let found = 0;
    for (const term of this.#tools[slot]?.nameTerms ?? []) {
      const weight = this.#inverseFrequencyOf(term, view);
      all += weight;
      if (asked.has(term)) found += weight;
    }
    return all === 0 ? 0 : found / all;
  }

  #explain(
    slot: number,
    entry: SectionEntry,
    groups: readonly Group[],
    named: readonly NamedTool[],
    view: View,
  ): readonly MatchedWord[] {
    const words: MatchedWord[] = [];
    const slots: number[] = [];
    for (const { asked, factor, candidates } of groups) {
      let best: MatchedWord | undefined;
      for (const { term, weight, as } of candidates) {
        const own = term.entries.filter((each) => each >>> TOOL_SHIFT === slot);
        this.#scoreTerm({ ...term, entries: own }, weight, view, slots);
        const score = factor * (this.#best[slot] ?? 0);
        this.#best[slot] = 0;
        if (score > (best?.score ?? 0)) best = { asked, word: term.word, as, score };
      }
      if (best !== undefined) words.push(best);
    }
    const name = named.find((each) => each.slot === slot);
    if (name !== undefined)
      words.push({ asked: entry.name, word: entry.name, as: "name", score: name.bonus });
    return words.sort((a, b) => b.score - a.score);
  }
}

interface Scored {
  readonly slot: number;
  readonly entry: SectionEntry;
  readonly score: number;
}

/** Inserts into a list that is sorted by score, then by exposed name. */
function insert(list: Scored[], one: Scored): void {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const other = list[middle];
    const isAfter =
      other !== undefined &&
      (other.score > one.score || (other.score === one.score && other.entry.name < one.entry.name));
    if (isAfter) low = middle + 1;
    else high = middle;
  }
  list.splice(low, 0, one);
}

const WEIGHTS = Float64Array.from(FIELDS, ({ weight }) => weight);
const NORMS = Float64Array.from(FIELDS, ({ norm }) => norm);
const FIELD_MASK = (1 << FIELD_BITS) - 1;
const NO_TRIGRAMS: ReadonlySet<string> = new Set();
/** Number of removed tools whose entries may stay in the index. */
const MIN_STALE = 256;

/** Whether a word is written as names are: with separators, or in camelCase. */
const NAME_LIKE = /[\p{L}\p{N}][_\-.:/]+[\p{L}\p{N}]|\p{Ll}\p{Lu}/u;

/** Whether a word may be a typing error of another: short words and numbers are not. */
function isComparable(word: string): boolean {
  return word.length > 3 && !/\d/.test(word);
}

/** Whether two entries have the same words. */
function isSameTool(a: SectionEntry, b: SectionEntry): boolean {
  if (a === b) return true;
  if (a.server !== b.server || a.name !== b.name) return false;
  return a.item === b.item || Buffer.compare(a.item.bytes, b.item.bytes) === 0;
}

/** The words of each word's classes, by stem. */
function classesOf(
  synonyms: readonly (readonly string[])[],
): ReadonlyMap<string, readonly string[]> {
  const classes = new Map<string, Set<string>>();
  const lists = [...WORD_CLASSES.map((line) => line.split(" ")), ...synonyms];
  for (const list of lists) {
    const stems = list.map((word) => stemOf(word.toLowerCase())).filter((stem) => stem !== "");
    for (const stem of stems) {
      const others = classes.get(stem) ?? new Set<string>();
      classes.set(stem, others);
      for (const other of stems) if (other !== stem) others.add(other);
    }
  }
  return new Map(Array.from(classes, ([stem, others]) => [stem, [...others]]));
}

/** Reads the words of a tool. */
function readWords(entry: SectionEntry): ToolWords {
  const counts = new Map<string, number>();
  const lengths = new Uint16Array(FIELD_COUNT);
  const add = (field: number, words: readonly string[]): void => {
    lengths[field] = Math.min((lengths[field] ?? 0) + words.length, 0xffff);
    const shift = field * COUNT_BITS;
    for (const word of words) {
      const fields = counts.get(word) ?? 0;
      if (((fields >>> shift) & MAX_COUNT) < MAX_COUNT) counts.set(word, fields + (1 << shift));
    }
  };
  add(NAME, wordsOf(entry.remoteName, MAX_NAME_WORDS));
  add(NAME, wordsOfNewName(entry));
  add(SERVER, wordsOf(entry.server, MAX_NAME_WORDS));
  const tool = readTool(entry.item);
  const { sentence, rest } = splitSentence(tool.description);
  for (const text of [sentence, ...tool.titles]) add(SENTENCE, wordsOf(text, MAX_DESCRIPTION));
  add(DESCRIPTION, wordsOf(rest, MAX_DESCRIPTION));
  for (const [i, words] of wordsOfSchema(tool.inputSchema).entries()) add(ARGUMENTS + i, words);
  return { counts, lengths };
}

/** The words of a name that the manifest gives a tool, which its name at the server and its server do not have. */
function wordsOfNewName({ name, server, remoteName }: SectionEntry): readonly string[] {
  if (name.endsWith(remoteName) || squash(name).endsWith(squash(remoteName))) return [];
  const known = new Set([...wordsOf(remoteName), ...wordsOf(server)]);
  const isShortened =
    SHORTENED.test(name) && (name.length > MIN_SHORTENED || !EXPOSABLE.test(remoteName));
  if (!isShortened) return wordsOf(name).filter((word) => !known.has(word));
  // The end is a hash, and the word before it may be cut.
  const isPartOfKnown = (word: string): boolean => [...known].some((each) => each.startsWith(word));
  return wordsOf(name.replace(SHORTENED, "")).filter((word) => !isPartOfKnown(word));
}

/** The end of a name that was shortened or had other characters, see `shortenName`. */
const SHORTENED = /_[a-z2-7]{6}$/;
const EXPOSABLE = /^[\w-]+$/;
/** Length up to which a name of usual characters is not shortened, for all limits in use. */
const MIN_SHORTENED = 30;

const MAX_NAME_WORDS = { words: 30, length: 500 };

interface ReadTool {
  readonly description: string;
  /** Texts that count as the first sentence does. */
  readonly titles: readonly string[];
  readonly inputSchema: unknown;
}

function readTool({ bytes, meta }: ListedItem): ReadTool {
  // A tool of usual size is parsed as a whole, which takes half the time.
  if (bytes.length <= MAX_PARSED) {
    const tool = parseRange(bytes, { start: 0, end: bytes.length });
    const texts = [
      propertyOf(tool, "title"),
      propertyOf(propertyOf(tool, "annotations"), "title"),
      propertyOf(propertyOf(tool, "_meta"), SEARCH_HINT),
    ];
    return {
      description: textIn(propertyOf(tool, "description")) ?? "",
      titles: texts.flatMap((text) => textIn(text) ?? []),
      inputSchema: propertyOf(tool, "inputSchema"),
    };
  }
  const object = JsonObject.of(bytes);
  const hints = meta === undefined ? undefined : JsonObject.at(bytes, meta);
  const titles = [
    object.string("title"),
    object.object("annotations").string("title"),
    hints?.string(SEARCH_HINT),
  ].flatMap((text) => text ?? []);
  return { description: object.string("description") ?? "", titles, inputSchema: undefined };
}

/** The member of `_meta` with more words by which a tool is to be found. */
const SEARCH_HINT = "anthropic/searchHint";

function textIn(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** The words of a schema: of its arguments' names, of their descriptions, and of enums. */
function wordsOfSchema(schema: unknown): readonly (readonly string[])[] {
  const words: [string[], string[], string[]] = [[], [], []];
  const limits = [MAX_ARGUMENT_WORDS, MAX_ARGUMENT_WORDS, MAX_ENUM_WORDS];
  let nodes = 0;
  const add = (list: 0 | 1 | 2, text: unknown): void => {
    if (typeof text !== "string") return;
    const left = (limits[list] ?? 0) - words[list].length;
    if (left > 0)
      words[list].push(...wordsOf(text, { words: left, length: MAX_DESCRIPTION.length }));
  };
  const visit = (node: unknown, depth: number): void => {
    if (!isJsonObject(node) || nodes++ > MAX_SCHEMA_NODES) return;
    if (depth > 0) {
      add(1, node["description"]);
      add(1, node["title"]);
    }
    const values = node["enum"];
    if (Array.isArray(values)) for (const value of values.slice(0, MAX_ENUM_WORDS)) add(2, value);
    if (depth >= MAX_SCHEMA_DEPTH) return;
    const properties = node["properties"];
    if (isJsonObject(properties)) {
      for (const [name, property] of Object.entries(properties)) {
        add(0, name);
        visit(property, depth + 1);
      }
    }
    visit(node["items"], depth + 1);
    for (const key of ["anyOf", "oneOf", "allOf"]) {
      const variants = node[key];
      if (Array.isArray(variants)) for (const variant of variants) visit(variant, depth + 1);
    }
  };
  visit(schema, 0);
  return words;
}
