/**
 * Words that mean the same to a person who looks for a tool, one class a line; words of one class find each other at a
 * part of their weight. A word may be in several classes, and classes are not joined.
 */
export const WORD_CLASSES: readonly string[] = ["find search lookup query locate discover explore"];
