package kvpool

import "slices"

// nodeID names a node of the prefix index.
type nodeID int32

const noNode nodeID = -1

// index is the tree of known prefixes: a node is one full block after its parent's prefix. Nodes are found by name, and
// live as long as they have a page, a child, or a branch that goes on from them.
type index struct {
	byName map[Hash]nodeID
	nodes  []node
	pages  []PageID // [node][group]
	tokens []int32  // [node][block size]
	free   []nodeID
	groups int
	block  int
}

type node struct {
	name   Hash
	parent nodeID
	refs   int32 // children, and branches whose last full block it is
}

func newIndex(g Geometry) index {
	return index{byName: map[Hash]nodeID{}, groups: len(g.Groups), block: g.BlockSize}
}

func (x *index) at(n nodeID, group int) int { return int(n)*x.groups + group }

func (x *index) tokensOf(n nodeID) []int32 { return x.tokens[int(n)*x.block : (int(n)+1)*x.block] }

// put finds or makes the node of a block after parent.
func (x *index) put(parent nodeID, name Hash, tokens []int32) nodeID {
	if n, ok := x.byName[name]; ok {
		return n
	}
	var n nodeID
	if last := len(x.free) - 1; last >= 0 {
		n = x.free[last]
		x.free = x.free[:last]
	} else {
		n = nodeID(len(x.nodes))
		x.nodes = append(x.nodes, node{})
		x.pages = slices.Grow(x.pages, x.groups)[:len(x.pages)+x.groups]
		x.tokens = slices.Grow(x.tokens, x.block)[:len(x.tokens)+x.block]
	}
	x.nodes[n] = node{name: name, parent: parent}
	copy(x.tokensOf(n), tokens)
	for g := range x.groups {
		x.pages[x.at(n, g)] = NoPage
	}
	if parent != noNode {
		x.nodes[parent].refs++
	}
	x.byName[name] = n
	return n
}

// prune removes n and its ancestors while nothing keeps them.
func (x *index) prune(n nodeID) {
	for n != noNode {
		nd := &x.nodes[n]
		if nd.refs > 0 || x.held(n) {
			return
		}
		delete(x.byName, nd.name)
		parent := nd.parent
		*nd = node{parent: noNode}
		x.free = append(x.free, n)
		if parent != noNode {
			x.nodes[parent].refs--
		}
		n = parent
	}
}

func (x *index) held(n nodeID) bool {
	for g := range x.groups {
		if x.pages[x.at(n, g)] != NoPage {
			return true
		}
	}
	return false
}

// walk is the path of nodes that tokens follow from the branch's root, at most limit blocks. Tokens are compared, not
// only names.
func (x *index) walk(b *branch, tokens []int32, limit int) []nodeID {
	var path []nodeID
	name := b.salt
	for i := range limit {
		block := tokens[i*x.block : (i+1)*x.block]
		name = Chain(b.key, name, block)
		n, ok := x.byName[name]
		if !ok || !slices.Equal(x.tokensOf(n), block) {
			break
		}
		path = append(path, n)
	}
	return path
}

// longest is the most blocks of path for which every group has all pages that the next position reads. A block that is
// missing for n blocks is missing for every shorter hit that reaches beyond it, so each turn jumps to the lowest one.
func (x *index) longest(g Geometry, path []nodeID) int {
	n := len(path)
	for n > 0 {
		missing := n
		for grp, lg := range g.Groups {
			for i := g.FirstBlock(lg, n*g.BlockSize+1); i < missing; i++ {
				if x.pages[x.at(path[i], grp)] == NoPage {
					missing = i
				}
			}
		}
		if missing == n {
			return n
		}
		n = missing
	}
	return 0
}
