// A netlist under test: ports are written and read one by one.
#include "netlist.h"

#include <cstdio>
#include <exception>
#include <sstream>

using ecp5::Netlist;

extern "C" {

Netlist *netlist_new(const char *text, char *refusal, int room) {
    std::istringstream stream(text);
    try {
        return new Netlist(stream);
    } catch (const std::exception &error) {
        snprintf(refusal, room, "%s", error.what());
        return nullptr;
    }
}

void netlist_delete(Netlist *netlist) { delete netlist; }

void netlist_write(Netlist *netlist, const char *port, uint64_t data) {
    netlist->write(netlist->port(port), data);
    netlist->settle();
}

uint64_t netlist_read(Netlist *netlist, const char *port) {
    return netlist->read(netlist->port(port));
}

uint64_t netlist_driven(Netlist *netlist) { return netlist->read(netlist->driven()); }

uint64_t netlist_driving(Netlist *netlist) { return netlist->read(netlist->driving()); }

void netlist_edge(Netlist *netlist) {
    netlist->edge();
    netlist->settle();
}

}  // extern "C"
