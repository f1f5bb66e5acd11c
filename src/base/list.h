/* SPDX-License-Identifier: Apache-2.0 */
/* A circular doubly linked list whose links are members of what it holds. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define list_entry(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))

/* The entry may be removed, or freed, by the body; its neighbours may not. */
#define list_for_each(it, head)                                                   \
	for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
	     it = it##_next, it##_next = it->next)

/* Makes an empty list, or a link that is in none. */
static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_append(struct list *head, struct list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Takes the link out; harmless for one that is in no list. */
static inline void list_remove(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

/* Moves all links of from to the end of head. */
static inline void list_move_all(struct list *head, struct list *from)
{
	while (!list_empty(from)) {
		struct list *link = from->next;
		list_remove(link);
		list_append(head, link);
	}
}
