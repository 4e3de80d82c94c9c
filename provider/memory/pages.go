package memory

// pages is a queue that grows and shrinks a page at a time: however long it is,
// nothing is copied when it grows, and what has left it does not keep its memory.
type pages[T any] struct {
	list  [][]T // all as long as pageLen
	skip  int   // values of the first page that have left
	count int
	spare []T // a page that has become empty, for the next that is needed
}

const pageLen = 512

func (p *pages[T]) len() int { return p.count }

// at returns the value that i others are before. It is valid until that leaves.
func (p *pages[T]) at(i int) *T {
	i += p.skip
	return &p.list[i/pageLen][i%pageLen]
}

// push appends a zero value, for the caller to fill in.
func (p *pages[T]) push() *T {
	if p.skip+p.count == len(p.list)*pageLen {
		page := p.spare
		if p.spare = nil; page == nil {
			page = make([]T, pageLen)
		}
		p.list = append(p.list, page)
	}
	p.count++
	return p.at(p.count - 1)
}

// popFront removes the first value.
func (p *pages[T]) popFront() {
	var zero T
	*p.at(0) = zero
	p.count--
	if p.skip++; p.skip == pageLen {
		p.spare, p.list[0] = p.list[0], nil
		p.list = p.list[1:]
		p.skip = 0
	}
}

// popBack removes the last value. Its page stays, for the next.
func (p *pages[T]) popBack() {
	var zero T
	*p.at(p.count - 1) = zero
	p.count--
	if p.skip+p.count <= (len(p.list)-1)*pageLen {
		p.spare = p.list[len(p.list)-1]
		p.list = p.list[:len(p.list)-1]
	}
}
