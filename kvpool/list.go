package kvpool

// list is a doubly linked list of pages, linked through the pages themselves.
type list struct {
	front, back PageID
	len         int
}

func newList() list { return list{front: NoPage, back: NoPage} }

// push appends a page: it becomes the most recently used.
func (l *list) push(pages []page, id PageID) {
	pages[id].prev, pages[id].next = l.back, NoPage
	if l.back == NoPage {
		l.front = id
	} else {
		pages[l.back].next = id
	}
	l.back = id
	l.len++
}

func (l *list) remove(pages []page, id PageID) {
	prev, next := pages[id].prev, pages[id].next
	if prev == NoPage {
		l.front = next
	} else {
		pages[prev].next = next
	}
	if next == NoPage {
		l.back = prev
	} else {
		pages[next].prev = prev
	}
	pages[id].prev, pages[id].next = NoPage, NoPage
	l.len--
}
