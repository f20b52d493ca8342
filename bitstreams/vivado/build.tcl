# Builds the bitstream of our RTL with Vivado: block design, synthesis, implementation, timing.
#
# NOT RUN YET: no Vivado was at hand when this was written. The logic of the script runs in a test
# (tests/runtime/tsim/test_vivado.py) against stand-ins for Vivado's commands, which shows that it is Tcl and does
# what it says in this order, not that Vivado accepts every command and property name. Written for
# Vivado 2020.2 or newer.
#
# Usage, in a folder that `vtaops hardware write --config NAME -o FOLDER` has written:
#     vivado -mode batch -source build.tcl
# Reads design.tcl (all parameters) and rtl/*. Writes NAME.bit, NAME.hwh, timing.rpt and
# utilization.rpt; project files are in project/. Fails if timing is not met.

set here [file dirname [file normalize [info script]]]
source [file join $here design.tcl]
set design vta_system

# --------------------------------------------------------------------------- the processing system
# `ps` maps the names that differ between the families. DRAM is reached through port HP0, which is not
# coherent with the caches: the driver flushes and invalidates them. A second master (weights with a
# port of their own, or the other halves of divided bursts) has HP1. The board's own boot loader sets
# up DRAM and pins, so no board files are needed; what counts here is the side towards the logic.

proc zynq7000 {} {
    global ps clock_mhz port_mhz
    array set ps {
        vlnv xilinx.com:ip:processing_system7
        clock ps/FCLK_CLK0
        port_clock ps/FCLK_CLK1
        reset ps/FCLK_RESET0_N
        control ps/M_AXI_GP0
        memory ps/S_AXI_HP0
        control_clock ps/M_AXI_GP0_ACLK
        memory_clocks ps/S_AXI_HP0_ACLK
        memory_bytes 8
        memory_segment ps/S_AXI_HP0/HP0_DDR_LOWOCM
        interrupt ps/IRQ_F2P
        second ps/S_AXI_HP1
        second_clock ps/S_AXI_HP1_ACLK
        second_segment ps/S_AXI_HP1/HP1_DDR_LOWOCM
        second_properties {CONFIG.PCW_USE_S_AXI_HP1 1 CONFIG.PCW_S_AXI_HP1_DATA_WIDTH 64}
    }
    set ps(port_clock_properties) \
        [list CONFIG.PCW_EN_CLK1_PORT 1 CONFIG.PCW_FPGA1_PERIPHERAL_FREQMHZ $port_mhz]
    create_bd_cell -type ip -vlnv $ps(vlnv) ps
    apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 -config {
        make_external "FIXED_IO, DDR" apply_board_preset "0" Master "Disable" Slave "Disable"
    } [get_bd_cells ps]
    set_property -dict [list \
        CONFIG.PCW_CRYSTAL_PERIPHERAL_FREQMHZ 50 \
        CONFIG.PCW_EN_CLK0_PORT 1 \
        CONFIG.PCW_EN_RST0_PORT 1 \
        CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ $clock_mhz \
        CONFIG.PCW_USE_M_AXI_GP0 1 \
        CONFIG.PCW_USE_S_AXI_HP0 1 \
        CONFIG.PCW_S_AXI_HP0_DATA_WIDTH 64 \
        CONFIG.PCW_USE_FABRIC_INTERRUPT 1 \
        CONFIG.PCW_IRQ_F2P_INTR 1 \
    ] [get_bd_cells ps]
}

proc zynqmp {} {
    global ps clock_mhz port_mhz
    array set ps {
        vlnv xilinx.com:ip:zynq_ultra_ps_e
        clock ps/pl_clk0
        port_clock ps/pl_clk1
        reset ps/pl_resetn0
        control ps/M_AXI_HPM0_FPD
        memory ps/S_AXI_HP0_FPD
        control_clock ps/maxihpm0_fpd_aclk
        memory_clocks ps/saxihp0_fpd_aclk
        memory_bytes 16
        memory_segment ps/SAXIGP2/HP0_DDR_LOW
        interrupt ps/pl_ps_irq0
        second ps/S_AXI_HP1_FPD
        second_clock ps/saxihp1_fpd_aclk
        second_segment ps/SAXIGP3/HP1_DDR_LOW
        second_properties {CONFIG.PSU__USE__S_AXI_GP3 1 CONFIG.PSU__SAXIGP3__DATA_WIDTH 128}
    }
    set ps(port_clock_properties) \
        [list CONFIG.PSU__FPGA_PL1_ENABLE 1 CONFIG.PSU__CRL_APB__PL1_REF_CTRL__FREQMHZ $port_mhz]
    create_bd_cell -type ip -vlnv $ps(vlnv) ps
    set_property -dict [list \
        CONFIG.PSU__FPGA_PL0_ENABLE 1 \
        CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $clock_mhz \
        CONFIG.PSU__USE__M_AXI_GP0 1 \
        CONFIG.PSU__USE__M_AXI_GP1 0 \
        CONFIG.PSU__USE__M_AXI_GP2 0 \
        CONFIG.PSU__USE__S_AXI_GP2 1 \
        CONFIG.PSU__SAXIGP2__DATA_WIDTH 128 \
        CONFIG.PSU__USE__IRQ0 1 \
    ] [get_bd_cells ps]
}

# -------------------------------------------------------------------------------- the block design

proc interconnect {cell from to} {
    # SmartConnect converts widths and AXI versions, and splits bursts that AXI3 does not know.
    create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect $cell
    set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [get_bd_cells $cell]
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $cell/S00_AXI]
    connect_bd_intf_net [get_bd_intf_pins $cell/M00_AXI] [get_bd_intf_pins $to]
}

proc array_clock {} {
    # The array's clock has twice the frequency of all others: both from one source, edge by edge.
    # That source is a net of the logic and no pin: it has its buffer. The reset waits for the lock.
    global ps clock_mhz
    create_bd_cell -type ip -vlnv xilinx.com:ip:clk_wiz clocks
    set_property -dict [list \
        CONFIG.PRIM_SOURCE No_buffer \
        CONFIG.PRIM_IN_FREQ $clock_mhz \
        CONFIG.USE_RESET false \
        CONFIG.USE_LOCKED true \
        CONFIG.CLKOUT2_USED true \
        CONFIG.CLKOUT1_REQUESTED_OUT_FREQ $clock_mhz \
        CONFIG.CLKOUT2_REQUESTED_OUT_FREQ [expr {2 * $clock_mhz}] \
    ] [get_bd_cells clocks]
    connect_bd_net [get_bd_pins $ps(clock)] [get_bd_pins clocks/clk_in1]
    connect_bd_net [get_bd_pins clocks/clk_out2] [get_bd_pins vta/array_clk]
    connect_bd_net [get_bd_pins clocks/locked] [get_bd_pins reset/dcm_locked]
    set ps(clock) clocks/clk_out1
}

# Between the clocks of the array and of the rest, one kind of path has a whole period of the slower
# one: a write clears the mark that a tile is held only at an edge of both clocks (in_step of
# scratchpad.sv), so what it is compared with has been there for a period, too.
set array_constraints {
    set array [get_clocks -of_objects [get_pins -hierarchical -filter {NAME =~ */vta/array_clk}]]
    set logic [get_clocks -of_objects [get_pins -hierarchical -filter {NAME =~ */vta/aclk}]]
    set marks [get_cells -hierarchical -filter {NAME =~ *_mem/g_hold.held_reg*}]
    set_multicycle_path 2 -setup -end -from $logic -to $marks
    set_multicycle_path 1 -hold -end -from $logic -to $marks
}

# Memories of one clock are UltraRAM where the part has too few block RAMs. The registers that Vivado
# infers them from are named before synthesis, so that reads this file, and the block design is
# synthesised together with its wrapper: cells that are synthesised alone read no such file.
proc ultra_ram_constraints {instances} {
    foreach instance $instances {
        lappend names "NAME =~ */[string map {. ?} $instance]/*mem_reg*"
    }
    set cells "\[get_cells -hierarchical -filter {[join $names { || }]}\]"
    return "set_property RAM_STYLE ULTRA $cells"
}

proc constraints {name text unread} {
    # Add a file of constraints that one of synthesis and implementation does not read.
    global here
    set path [file join $here $name]
    set file [open $path w]
    puts $file $text
    close $file
    add_files -fileset constrs_1 $path
    set_property $unread false [get_files $name]
}

proc block_design {} {
    global ps design family pairs second_port port_mhz port_bytes address_bits register_base \
        register_bytes
    create_bd_design $design
    $family

    create_bd_cell -type module -reference vta_axi vta
    set_property -dict [list CONFIG.PORT_BYTES $port_bytes CONFIG.ADDRESS_BITS $address_bits] \
        [get_bd_cells vta]
    create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
    interconnect control_bus $ps(control) vta/s_axi
    interconnect memory_bus vta/m_axi $ps(memory)
    set buses {control_bus memory_bus}
    if {$second_port ne ""} {
        set_property -dict $ps(second_properties) [get_bd_cells ps]
        interconnect second_bus vta/$second_port $ps(second)
        lappend buses second_bus
        lappend ps(memory_clocks) $ps(second_clock)
    }

    if {$pairs} array_clock else {
        connect_bd_net [get_bd_pins $ps(clock)] [get_bd_pins vta/array_clk]
    }
    set clocked [list vta/aclk reset/slowest_sync_clk $ps(control_clock)]
    foreach bus $buses { lappend clocked $bus/aclk }
    set port_clock ""
    if {$port_mhz} {
        # Divided bursts: the ports have their fastest clock, to which the interconnects cross.
        set_property -dict $ps(port_clock_properties) [get_bd_cells ps]
        set port_clock $ps(port_clock)
    } elseif {$pairs && $port_bytes > $ps(memory_bytes)} {
        # Words of twice the port's width: the port moves their halves at the array's clock.
        set port_clock clocks/clk_out2
    }
    if {$port_clock ne ""} {
        foreach bus [lrange $buses 1 end] {
            set_property CONFIG.NUM_CLKS 2 [get_bd_cells $bus]
            lappend ps(memory_clocks) $bus/aclk1
        }
        foreach pin $ps(memory_clocks) {
            connect_bd_net [get_bd_pins $port_clock] [get_bd_pins $pin]
        }
    } else { lappend clocked {*}$ps(memory_clocks) }
    foreach pin $clocked {
        connect_bd_net [get_bd_pins $ps(clock)] [get_bd_pins $pin]
    }
    connect_bd_net [get_bd_pins vta/irq] [get_bd_pins $ps(interrupt)]
    connect_bd_net [get_bd_pins $ps(reset)] [get_bd_pins reset/ext_reset_in]
    foreach cell [concat vta $buses] {
        connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins $cell/aresetn]
    }

    assign_bd_address -offset $register_base -range $register_bytes -force \
        -target_address_space [get_bd_addr_spaces ps/Data] [get_bd_addr_segs vta/s_axi/reg0]
    assign_bd_address -force \
        -target_address_space [get_bd_addr_spaces vta/m_axi] [get_bd_addr_segs $ps(memory_segment)]
    if {$second_port ne ""} {
        assign_bd_address -force -target_address_space [get_bd_addr_spaces vta/$second_port] \
            [get_bd_addr_segs $ps(second_segment)]
    }
    validate_bd_design
    save_bd_design
}

# ------------------------------------------------------------------------------- the steps of a run

proc complete {run} {
    wait_on_run $run
    set progress [get_property PROGRESS [get_runs $run]]
    if {$progress ne "100%"} {
        error "$run failed: [get_property STATUS [get_runs $run]]"
    }
}

proc slack {which} {
    set value [get_property STATS.$which [get_runs impl_1]]
    if {![string is double -strict $value] || $value < 0} {
        error "timing is not met: $which is '$value' ns; see timing.rpt. A slower clock is\
            --clock-mhz of vtaops hardware write."
    }
    return $value
}

proc found {pattern folder} {
    # Vivado moved the generated files between versions: search for them.
    set files [glob -nocomplain -directory $folder $pattern]
    foreach child [glob -nocomplain -directory $folder -type d *] {
        set files [concat $files [found $pattern $child]]
    }
    return $files
}

proc main {} {
    global here design name part jobs pairs array_constraints ultra_ram
    set project [file join $here project]
    create_project -force vta $project -part $part
    add_files [glob [file join $here rtl *]]
    update_compile_order -fileset sources_1

    block_design
    set source [get_files $design.bd]
    if {[llength $ultra_ram]} {
        set_property SYNTH_CHECKPOINT_MODE None $source
        constraints memories.xdc [ultra_ram_constraints $ultra_ram] USED_IN_IMPLEMENTATION
    }
    generate_target all $source
    add_files -norecurse [make_wrapper -files $source -top]
    set_property top ${design}_wrapper [current_fileset]
    update_compile_order -fileset sources_1

    # There are no pins, and the clock is that of the processing system.
    # The array's name pins and registers that only the linked design has.
    if {$pairs} { constraints array.xdc $array_constraints USED_IN_SYNTHESIS }
    set_property STEPS.PHYS_OPT_DESIGN.IS_ENABLED true [get_runs impl_1]
    launch_runs synth_1 -jobs $jobs
    complete synth_1
    launch_runs impl_1 -to_step route_design -jobs $jobs
    wait_on_run impl_1
    open_run impl_1
    report_timing_summary -file [file join $here timing.rpt]
    report_utilization -hierarchical -file [file join $here utilization.rpt]
    set setup [slack WNS]
    set hold [slack WHS]

    set bit [file join $here $name.bit]
    set hwh [file join $here $name.hwh]
    write_bitstream -force $bit
    set generated [lindex [found $design.hwh $project] 0]
    if {$generated eq ""} { error "Vivado wrote no $design.hwh below $project" }
    file copy -force $generated $hwh

    puts "timing is met: worst setup slack $setup ns, worst hold slack $hold ns"
    puts "bitstream: $bit"
    puts "handoff:   $hwh (keep it beside the bitstream: PYNQ reads port widths and clocks from it)"
    if {[catch {exec sha256sum $bit} digest]} { set digest "unknown: $digest" }
    puts "sha256:    [lindex $digest 0]"
    puts "to use it: vtaops flash BOARD --bitstream $bit"
}

main
